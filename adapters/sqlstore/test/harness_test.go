package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// node is a Store with its pool.
type node struct {
	*sqlstore.Store
	db      *sql.DB
	dialect sqlstore.Dialect
}

// newNode returns a node. Its ClaimTimeout is long enough for a busy machine, unless cfg sets it: the timeout also
// limits BEGIN.
func newNode(t testing.TB, db *sql.DB, cfg sqlstore.Config) *node {
	t.Helper()
	cfg.DB, cfg.ClaimTimeout = db, cmp.Or(cfg.ClaimTimeout, 2*time.Minute)
	s, err := sqlstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &node{s, db, cfg.Dialect}
}

func openDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(16) // a new connection costs the server more than most tests do
	t.Cleanup(func() {
		awaitUnused(t, db)
		db.Close()
	})
	return db
}

// awaitUnused reports whether all connections of db are given back; otherwise the test fails.
func awaitUnused(t testing.TB, db *sql.DB) bool {
	t.Helper()
	for began := time.Now(); db.Stats().InUse != 0; <-time.After(time.Millisecond) { // a NOTIFY may still be running
		if time.Since(began) > time.Minute {
			t.Errorf("%d connections were not given back", db.Stats().InUse)
			return false
		}
	}
	return true
}

// keptPools are pools that no test uses, by driver and DSN.
var keptPools = struct {
	mu   sync.Mutex
	idle map[string][]*sql.DB
}{idle: map[string][]*sql.DB{}}

// keptDB is openDB with the connections of an earlier test, if its database is used again. It is for tests that leave
// no setting in a session. To begin a session costs PostgreSQL more than most cases of a suite do.
func keptDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	name := driver + " " + dsn
	keptPools.mu.Lock()
	defer keptPools.mu.Unlock()
	var db *sql.DB
	if idle := keptPools.idle[name]; len(idle) > 0 {
		db, keptPools.idle[name] = idle[len(idle)-1], idle[:len(idle)-1]
	} else {
		var err error
		if db, err = sql.Open(driver, dsn); err != nil {
			t.Fatal(err)
		}
	}
	db.SetMaxIdleConns(16)
	t.Cleanup(func() {
		if !awaitUnused(t, db) || t.Failed() {
			db.Close()
			return
		}
		db.SetMaxOpenConns(0)
		db.SetMaxIdleConns(3) // most cases need no more, and the server has a limit
		keptPools.mu.Lock()
		defer keptPools.mu.Unlock()
		keptPools.idle[name] = append(keptPools.idle[name], db)
	})
	return db
}

// again repeats f while its short timeouts end because the machine is busy.
func again(s *node, f func() error) error {
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := f()
		if !s.Retryable(err) && !errors.Is(err, dedup.ErrInFlight) || time.Since(began) > time.Minute {
			return err
		}
	}
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func stringsOf(t testing.TB, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func effect(query string) func(context.Context, *sql.Tx, string) error {
	return func(ctx context.Context, tx *sql.Tx, name string) error {
		_, err := tx.ExecContext(ctx, query, name)
		return err
	}
}

// registerSource returns a DB.RegisterSource. The statement insert records two sources: an empty one and another one.
// The statement waiting counts the transactions that wait for the transaction of a connection. The statement id returns
// that connection's number.
func registerSource(db *sql.DB, insert, id, waiting string) func(t *testing.T, consumer, source string) (commit func(), waited func() bool) {
	return func(t *testing.T, consumer, source string) (commit func(), waited func() bool) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		var own int
		if err := tx.QueryRow(id).Scan(&own); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(insert, consumer, consumer, source); err != nil {
			t.Fatal(err)
		}
		commit = func() {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		return commit, func() (yes bool) {
			if err := db.QueryRow(waiting, own).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			return yes
		}
	}
}

// text returns a handler that sends statements and ignores their errors.
func text(name string, ends bool, statements ...string) deduptest.Misuse[*sql.Tx] {
	return deduptest.Misuse[*sql.Tx]{Name: name, Ends: ends, Do: func(ctx context.Context, tx *sql.Tx) (err error) {
		for _, q := range statements {
			_, err = tx.ExecContext(ctx, q)
		}
		return err
	}}
}

const autocommit = "an *sql.Tx cannot be wrapped, and without a transaction the database commits each statement"

// unstoppable returns a handler like text that rolls back. What it writes afterwards stays in the database.
func unstoppable(name string, statements ...string) deduptest.Misuse[*sql.Tx] {
	m := text(name, true, statements...)
	m.Reported = autocommit
	return m
}

// misuses are the misuses that all databases have in common.
func misuses() []deduptest.Misuse[*sql.Tx] {
	return []deduptest.Misuse[*sql.Tx]{
		{Name: "tx.Commit", Ends: true, Do: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }},
		{Name: "tx.Rollback", Ends: true, Do: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }},
		text("COMMIT as text", true, `COMMIT`),
		unstoppable("ROLLBACK as text", `ROLLBACK`),
		text("END as text behind a comment", true, "-- bye\n /* a */ end"),
		text("COMMIT and BEGIN as text", true, `COMMIT`, `BEGIN`),
		text("ROLLBACK and BEGIN as text", true, `ROLLBACK`, `BEGIN`),
		text("COMMIT in a string of statements", true, `SELECT 1; COMMIT`),
		text("ROLLBACK TO a savepoint", false, `SAVEPOINT mine`, `SELECT 1`, `ROLLBACK TO SAVEPOINT mine`),
	}
}
