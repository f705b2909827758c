package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/migrations"
)

// A Sweeper that archives keys has the lease: sweep --once must not delete keys beside it, because it does not archive.
func TestSweepOnceLeavesTheLeaseOfASweeper(t *testing.T) {
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKills(t, s)
			if err := migrations.Apply(t.Context(), k.db, string(k.dialect), ""); err != nil {
				t.Fatal(err)
			}
			until := fmt.Sprint(time.Now().Add(3 * time.Minute).UnixMicro())
			if name == "postgres" {
				until = "now() + interval '3 minutes'"
			}
			k.exec(t, `UPDATE txonce_sweep SET owner = 'host/1', lease_until = `+until)
			var out bytes.Buffer
			cmd := cli.New(cli.Config{Open: open})
			cmd.SetArgs([]string{"sweep", "--once", "--dsn", k.line})
			cmd.SetOut(&out)
			if err := cmd.ExecuteContext(t.Context()); err != nil ||
				!strings.Contains(out.String(), "another sweeper has the lease") {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}
