//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		os.Exit(workerMain())
	}
	os.Exit(m.Run())
}

func failover(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	if why := testdb.NoOwnPostgres(); why != "" {
		t.Fatal(why)
	}
	var out bytes.Buffer
	code = command(append(args, "-kafka", strings.Join(testkafka.Brokers(t), ",")), &out, &out)
	return code, out.String()
}

func TestNothingIsLost(t *testing.T) {
	for _, args := range [][]string{
		{"-seed=1", "-failovers=2", "-restarts=1"},
		{"-seed=2", "-cooperative", "-failovers=2", "-restarts=1"},
		{"-seed=3", "-database=mariadb", "-failovers=1", "-restarts=0"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if testing.Short() {
				t.Skip("needs servers")
			}
			t.Parallel()
			code, out := failover(t, append(args, "-backups=1", "-rate=200")...)
			if code != 0 || !strings.Contains(out, "lost 0, doubled 0") || strings.Contains(out, "lost 0 effects") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// Messages that kill their processes are parked, and no message beside them is.
func TestKillersAreParked(t *testing.T) {
	for _, mode := range []string{
		"-cooperative=false", "-cooperative",
		// a process has more in work than MaxUnfinished, since its row is up to a second old
		"-partitions=1 -rate=2000 -apart=300 -unfinished=50",
	} {
		t.Run(mode, func(t *testing.T) {
			if testing.Short() {
				t.Skip("needs servers")
			}
			t.Parallel()
			code, out := failover(t, append(strings.Fields("-killers=2 -failovers=0 -backups=0 -restarts=0 -rate=100"),
				strings.Fields(mode)...)...)
			if code != 0 || !strings.Contains(out, "lost 0, doubled 0; 2 messages killed their processes, and 2 are parked") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// Without positions the audit finds what a failover has lost.
func TestTheAuditFindsLosses(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	code, out := failover(t, "-broken", "-failovers=0", "-backups=1", "-restarts=0", "-rate=200", "-patience=8s")
	if code != 1 || !strings.Contains(out, "doubled 0") || strings.Contains(out, "lost 0, ") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestRefusedArguments(t *testing.T) {
	for _, args := range [][]string{{"-failovers=-1"}, {"-rate=0"}, {"-kafka="}, {"word"}, {"-unknown"}} {
		var out bytes.Buffer
		if code := command(args, &out, &out); code != 2 || out.Len() == 0 {
			t.Errorf("%q: exit code %d, says %q", args, code, out.String())
		}
	}
}
