package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

func TestSQLiteRegisterRefusesSettings(t *testing.T) {
	for _, test := range []struct {
		name, settings string
		allow          bool
		want           error
		says           string
	}{
		{name: "wal and full", settings: "_pragma=journal_mode(wal)"},
		// SQLite's defaults
		{name: "deleted journal", want: dedup.ErrNotDurable, says: "synchronous is full and journal_mode is delete"},
		{name: "deleted journal, allowed", allow: true},
		{name: "deleted journal and extra", settings: "_pragma=synchronous(extra)"},
		{name: "truncated journal", settings: "_pragma=journal_mode(truncate)"},
		{name: "persistent journal", settings: "_pragma=journal_mode(persist)"},
		{
			name: "normal", settings: "_pragma=journal_mode(wal)&_pragma=synchronous(normal)", want: dedup.ErrNotDurable,
			says: "synchronous is normal",
		},
		{name: "off", settings: "_pragma=synchronous(off)", want: dedup.ErrNotDurable, says: "synchronous is off"},
		{name: "normal, allowed", settings: "_pragma=journal_mode(wal)&_pragma=synchronous(normal)", allow: true},
		{
			name: "journal in memory", settings: "_pragma=journal_mode(memory)", want: dedup.ErrNotDurable,
			says: "journal_mode is memory",
		},
		{name: "journal in memory, allowed", settings: "_pragma=journal_mode(memory)", allow: true},
		{
			name: "no journal", settings: "_pragma=journal_mode(off)", want: dedup.ErrNotDurable,
			says: "cannot roll back",
		},
		{
			name: "no journal cannot be allowed", settings: "_pragma=journal_mode(off)", allow: true,
			want: dedup.ErrNotDurable, says: "cannot roll back",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := openSQLite(t)
			exec(t, d.db, `PRAGMA journal_mode = delete`)
			d.db.Close()
			d.own.Close()
			file, _, _ := strings.Cut(d.dsn, "?")
			s := newNode(t, openDB(t, "sqlite", file+"?"+test.settings),
				sqlstore.Config{Dialect: sqlstore.SQLite, AllowAsyncCommit: test.allow})
			err := s.Register(t.Context(), "billing", 0)
			if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("Register = %v, want %v that says %q", err, test.want, test.says)
			}
			if err != nil { // the consumer's name is free again
				if again := s.Register(t.Context(), "billing", 0); errors.Is(again, dedup.ErrNameTaken) {
					t.Error(again)
				}
			}
		})
	}
}

// Register of a locked file fails with a Retryable error that does not blame the driver.
func TestSQLiteRegisterOfALockedFile(t *testing.T) {
	d := openSQLite(t)
	exec(t, d.db, `PRAGMA journal_mode = delete`) // in this mode readers wait too
	d.db.Close()
	d.own.Close()
	file, _, _ := strings.Cut(d.dsn, "?")
	file += "?_pragma=synchronous(extra)"
	locker, err := openDB(t, "sqlite", file).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	if _, err := locker.ExecContext(t.Context(), `BEGIN EXCLUSIVE`); err != nil {
		t.Fatal(err)
	}
	s := newNode(t, openDB(t, "sqlite", file), sqlstore.Config{Dialect: sqlstore.SQLite, ClaimTimeout: 10 * time.Millisecond})
	if err := s.Register(t.Context(), "billing", 0); !s.Retryable(err) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("Register of a locked file = %v, want a Retryable error", err)
	}
	if _, err := locker.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(t.Context(), "billing", 0); err != nil {
		t.Errorf("Register of the unlocked file = %v", err)
	}
}

func TestSQLiteReadOnlyFile(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn+"&_pragma=query_only(1)", deduptest.Options{})
	if err := s.Register(t.Context(), "billing", 0); !errors.Is(err, dedup.ErrAccess) || !s.Retryable(err) ||
		!strings.Contains(err.Error(), "readonly") {
		t.Errorf("Register = %v", err)
	}
}

// The driver's BEGIN is deferred in this test. A transaction that reads before it writes would fail if another one has
// written since.
func TestSQLiteInTxTakesTheWriteLockAtOnce(t *testing.T) {
	d := openSQLite(t)
	s, other := d.open(t, d.dsn, deduptest.Options{}), d.open(t, d.dsn, deduptest.Options{})
	within(t, s, func(ctx context.Context, tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM effects`).Scan(&n); err != nil {
			return err
		}
		if _, err := other.db.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('other')`); !s.Retryable(err) {
			t.Errorf("another connection wrote: %v", err)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('own')`)
		return err
	})
}

// In a caller's transaction the Store cannot undo earlier reads.
func TestSQLiteClaimAfterRead(t *testing.T) {
	d := openSQLite(t)
	s, other := d.open(t, d.dsn, deduptest.Options{}), d.open(t, d.dsn, deduptest.Options{})
	claim(t, s, record("warm"))
	var attempts int
	attempt := func() error {
		attempts++
		return inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRow(`SELECT count(*) FROM effects`).Scan(&n); err != nil {
				return err
			}
			if attempts == 1 {
				claim(t, other, record("k"))
			}
			c, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")})
			if err == nil && c[0].Verdict != dedup.Duplicate {
				t.Errorf("verdict %v", c[0].Verdict)
			}
			return err
		})
	}
	if err := attempt(); !s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) {
		t.Errorf("after another's write: %v, want a Retryable error that is not ErrInFlight", err)
	}
	if err := attempt(); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
}

// A handler that calls InTx of the same Store would wait for itself. The wait is limited.
func TestSQLiteInTxWithinInTxDoesNotHang(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{Wait: 50 * time.Millisecond})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
		return s.InTx(t.Context(), []dedup.Record{record("l")}, func(*sql.Tx, []dedup.Claim) error { return nil })
	})
	if !s.Retryable(err) {
		t.Errorf("got %v, want a Retryable error", err)
	}
}

// One connection is enough: within a transaction the Store uses only that transaction's connection.
func TestSQLiteOnOneConnection(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := inTx(ctx, s.db, nil, func(tx *sql.Tx) error {
		_, err := s.Claim(ctx, tx, []dedup.Record{record("k")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(ctx, "billing", 0); err != nil {
		t.Error(err)
	}
	if c := claim(t, s, record("k")); c[0].Verdict != dedup.Duplicate {
		t.Errorf("verdict %v", c[0].Verdict)
	}
	if _, err := s.Purge(ctx, dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 10}); err != nil {
		t.Error(err)
	}
}

// SQLite refuses COMMIT because of a foreign key that the handler broke, or because other connections read. The
// transaction rolls back.
func TestSQLiteRefusedCommit(t *testing.T) {
	for name, tt := range map[string]struct {
		insert    string
		read      string // what another connection reads meanwhile
		retryable bool
	}{
		"a deferred constraint": {insert: `INSERT INTO child VALUES (1)`},
		"a reader": {
			insert: `INSERT INTO parent VALUES (3)`, read: `SELECT id FROM parent`,
			retryable: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := openSQLite(t)
			exec(t, d.db, `PRAGMA journal_mode = delete`)
			d.dsn = strings.Replace(d.dsn, "journal_mode(wal)", "journal_mode(delete)", 1)
			exec(t, d.db, `CREATE TABLE parent (id INTEGER PRIMARY KEY)`)
			exec(t, d.db, `INSERT INTO parent VALUES (10), (20)`)
			exec(t, d.db, `CREATE TABLE child (parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`)
			s := d.open(t, d.dsn+"&_pragma=foreign_keys(1)", deduptest.Options{Wait: 50 * time.Millisecond})
			warm(t, s)
			err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
				if tt.read != "" {
					rows, err := openDB(t, "sqlite", d.dsn).Query(tt.read)
					if err != nil {
						return err
					}
					t.Cleanup(func() { rows.Close() })
					if rows.Next(); rows.Err() != nil {
						return rows.Err()
					}
				}
				_, err := tx.Exec(tt.insert)
				return err
			})
			if err == nil || s.Retryable(err) != tt.retryable || s.Ambiguous(err) || errors.Is(err, dedup.ErrTxEnded) ||
				s.Result(err) != observe.RolledBack {
				t.Errorf("InTx = %v; retryable %v, ambiguous %v, result %q; want retryable %v, and that it is rolled back", err, s.Retryable(err), s.Ambiguous(err), s.Result(err), tt.retryable)
			}
			if c, found, err := s.Lookup(t.Context(), record("k").Key); found {
				t.Errorf("the claim is there: %v, %v", c, err)
			}
		})
	}
}

// The sweep reads the table in parts of limited size, and reaches the end even if few rows have expired.
func TestSQLiteSweepsALongTable(t *testing.T) {
	d := openSQLite(t)
	exec(t, d.db, `INSERT INTO processed_messages (key, expires_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
		SELECT randomblob(16), CASE WHEN i % 1000 = 0 THEN 1 ELSE 9e15 END FROM n`)
	s := d.open(t, d.dsn, deduptest.Options{})
	var calls, keys int
	for done := false; !done; calls++ {
		swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		keys, done = keys+swept.Keys, swept.Done
	}
	if keys != 25 || calls < 3 || calls > 6 {
		t.Errorf("%d keys in %d calls, want 25 in a few", keys, calls)
	}
}

// Writers of one process queue without a connection. They do not poll for SQLite's lock.
func TestSQLiteWritersQueue(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	claim(t, s, record("warm"))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			err := s.InTx(t.Context(), []dedup.Record{record(fmt.Sprint(i))}, func(tx *sql.Tx, _ []dedup.Claim) error {
				_, err := tx.Exec(`INSERT INTO effects (name) VALUES ('x')`)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if stats := s.db.Stats(); stats.OpenConnections > 2 || stats.MaxIdleClosed > 0 {
		t.Errorf("%d open and %d closed connections, want few because one transaction writes at a time",
			stats.OpenConnections, stats.MaxIdleClosed)
	}
}

// Processes that write without a pause take turns, although SQLite itself would prefer the process that asks first.
func TestSQLiteProcessesTakeTurns(t *testing.T) {
	t.Parallel() // this test mostly waits
	d := openSQLite(t)
	nodes := [3]*node{}
	for p := range nodes {
		nodes[p] = d.open(t, d.dsn, deduptest.Options{Wait: time.Minute})
	}
	var counts [3]int
	for round := range 4 { // a busy machine may delay one of the processes
		counts = turnsTaken(t, nodes, round)
		if 4*slices.Min(counts[:]) >= slices.Max(counts[:]) {
			return
		}
	}
	t.Errorf("transactions per process: %v", counts)
}

// turnsTaken makes 30 transactions of 50 ms on the nodes, and counts them by node.
func turnsTaken(t *testing.T, nodes [3]*node, round int) (counts [3]int) {
	t.Helper()
	var wg sync.WaitGroup
	var all atomic.Int64
	for p, s := range nodes {
		wg.Go(func() {
			for all.Load() < 30 && !t.Failed() {
				r := record(fmt.Sprint(round, "/", p, "/", counts[p]))
				err := s.InTx(t.Context(), []dedup.Record{r}, func(*sql.Tx, []dedup.Claim) error {
					<-time.After(50 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				counts[p]++
				all.Add(1)
			}
		})
	}
	wg.Wait()
	return counts
}

// opaque is a driver whose errors are plain text.
type opaque struct{ driver.Driver }

type opaqueConn struct{ driver.Conn }

func (d opaque) Open(name string) (driver.Conn, error) {
	conn, err := d.Driver.Open(name)
	return opaqueConn{conn}, err
}

func (c opaqueConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	if err != nil {
		err = errors.New(err.Error())
	}
	return stmt, err
}

// opaqueDriver registers a driver whose errors have no codes, and returns its name. Each call uses a new name, because
// drivers cannot be unregistered.
func opaqueDriver(d driver.Driver) (name string) {
	name = fmt.Sprintf("opaque %T %d", d, len(sql.Drivers()))
	sql.Register(name, opaque{d})
	return name
}

// With a driver whose errors have no codes, a busy database would look like a bad message, and the message would be
// parked.
func TestSQLiteRefusesADriverWithoutCodes(t *testing.T) {
	d := openSQLite(t)
	s := newNode(t, openDB(t, opaqueDriver(d.db.Driver()), d.dsn), sqlstore.Config{Dialect: sqlstore.SQLite})
	if err := s.Register(t.Context(), "billing", 0); err == nil || !strings.Contains(err.Error(),
		"sqlstore_test.opaque") {
		t.Errorf("Register = %v, want an error that names the driver", err)
	}
}

// A handler that writes on another connection waits for the lock of its own transaction. The error explains that.
func TestSQLiteHandlerThatWritesBesideItsTransaction(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error {
		_, err := d.db.ExecContext(t.Context(), `INSERT INTO effects (name) VALUES ('beside')`)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "another connection than its tx") || !s.Retryable(err) {
		t.Errorf("InTx = %v; want an error that explains the handler's mistake", err)
	}
}
