package debezium_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// capture is an outbox on the test's own PostgreSQL, and the records that Debezium's engine has made of it so far.
type capture struct {
	server *testdb.OwnPostgres
	pool   *pgxpool.Pool
	store  *pgxstore.Store
	drain  string // the statement in docs/interop.md that deletes captured messages
	dir    string // with the engine's offsets

	mu      sync.Mutex
	records []record // without heartbeats
	beats   int
}

// newCapture makes the publication of docs/interop.md, but no slot. ok is false if no server can be started; the test
// then has nothing to do.
func newCapture(t *testing.T) (c *capture, ok bool) {
	t.Helper()
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return nil, false
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "interop.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(doc), "## Debezium\n")
	blocks := strings.Split(part, "```sql\n")
	if len(blocks) != 3 {
		t.Fatalf("docs/interop.md has %d blocks of SQL about Debezium, want the publication and the deletion",
			len(blocks)-1)
	}
	publication, _, _ := strings.Cut(blocks[1], "```")
	c = &capture{dir: t.TempDir()}
	c.drain, _, _ = strings.Cut(blocks[2], "```")

	// The slot and the restarts of this test must not affect a shared server.
	c.server = testdb.StartPostgres(t, "wal_level=logical")
	db, err := sql.Open("pgx/v5", c.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	if c.pool, err = pgxpool.New(t.Context(), c.server.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	if c.store, err = pgxstore.New(pgxstore.Config{Pool: c.pool}); err != nil {
		t.Fatal(err)
	}
	c.exec(t, publication)
	c.exec(t, `CREATE ROLE janitor; GRANT SELECT, DELETE ON outbox_messages TO janitor`)
	return c, true
}

func (c *capture) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := c.pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// deleteCaptured runs the statement of docs/interop.md with only the permissions that it needs.
func (c *capture) deleteCaptured(t *testing.T) error {
	conn, err := pgx.Connect(t.Context(), c.server.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SET ROLE janitor`); err != nil {
		return err
	}
	_, err = conn.Exec(t.Context(), c.drain)
	return err
}

// count returns the number that a query returns.
func (c *capture) count(t *testing.T, sql string) (n int) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const (
	countRows   = `SELECT count(*) FROM outbox_messages`
	countActive = `SELECT count(*) FROM pg_replication_slots WHERE active`
	dropSlot    = `SELECT pg_drop_replication_slot('txonce_outbox')`
)

// captured returns how many records have arrived, including repeats.
func (c *capture) captured() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// await waits until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (c *capture) offsets() string { return filepath.Join(c.dir, "offsets") }

// drainOn deletes captured messages repeatedly until stop is called.
func (c *capture) drainOn(t *testing.T) (stop func()) {
	t.Helper()
	return repeat(func() { _ = c.deleteCaptured(t) }) // fails while the server is down
}

// repeat calls do repeatedly, with short pauses, until stop is called. stop waits for the last call.
func repeat(do func()) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-stopped
	})
}
