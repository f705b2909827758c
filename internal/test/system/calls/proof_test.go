package calls_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/proof"
	"github.com/txonce/txonce/internal/test/system/engines"
)

// counts counts the faults of the tests with one database, for docs/proof.md.
type counts struct {
	mu  sync.Mutex
	run proof.Run
}

// newCounts writes the counts when the tests of t have ended.
func newCounts(t *testing.T, e engines.Engine) *counts {
	c := &counts{run: proof.Run{
		Tier: proof.Process, Name: "calls to another system that misbehaves: " + titles[e.Name],
		Command: "make calls", Date: time.Now().Format(time.DateOnly), Commit: proof.Commit(),
	}}
	began := time.Now()
	t.Cleanup(func() {
		if *out == "" {
			return
		}
		c.run.Seconds = time.Since(began).Seconds()
		if err := c.run.Check(); err != nil {
			t.Error(err)
		}
		if err := c.run.Write(filepath.Join(*out, "process-calls-"+e.Name+".json")); err != nil {
			t.Error(err)
		}
	})
	return c
}

var titles = map[string]string{"postgres": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}

func (c *counts) add(killed, frozen, bad int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for action, n := range map[string]int{"SIGKILL": killed, "SIGSTOP past its lease": frozen} {
		cell := c.run.Cell("a relay that makes calls", action)
		cell.Faults, cell.Cases = cell.Faults+n, cell.Cases+n
		c.run.Cases += n
	}
	c.run.Bad += bad
}
