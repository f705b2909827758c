package testdb

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const reservedPort = "TXONCE_TEST_RESERVED_PORT"

// A port that this process has reserved is reserved in a process with another TMPDIR too, such as that of another
// checkout, until it is released.
func TestAPortIsReservedForAllProcesses(t *testing.T) {
	if text, isChild := os.LookupEnv(reservedPort); isChild {
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("free: %v", takePort(port) != nil)
		return
	}
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	freeElsewhere := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), reservedPort+"="+strconv.Itoa(port), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, free, _ := strings.Cut(string(out), "free: ")
		free, _, _ = strings.Cut(free, "\n")
		return free
	}
	if got := freeElsewhere(); got != "false" {
		t.Errorf("while the port is reserved, it is free for another process: %q", got)
	}
	release()
	if got := freeElsewhere(); got != "true" {
		t.Errorf("after its release, it is free for another process: %q", got)
	}
}
