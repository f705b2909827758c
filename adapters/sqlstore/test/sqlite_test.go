package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/migrations"
)

func TestSQLite(t *testing.T) {
	t.Parallel() // together with the suites of the other databases
	deduptest.TestStore(t, sqliteHarness())
}

func sqliteHarness() deduptest.Harness[*sql.Tx] {
	const noNetwork = "no connection lies between the store and its file, so a COMMIT has no answer to lose"
	const oneWriter = "the transaction that waits or is waited for would hold the lock on the whole database"
	return deduptest.Harness[*sql.Tx]{
		New:       func(t *testing.T) deduptest.DB[*sql.Tx] { return newSQLiteDB(t) },
		OneWriter: true,
		Codes:     sqliteCodes(),
		DoesNotApply: map[string]string{
			"commit outcome unknown: COMMIT lost":                   noNetwork,
			"commit outcome unknown: answer lost":                   noNetwork,
			"commit outcome unknown: COMMIT late":                   noNetwork,
			"commit outcome unknown: a claim that gives up waiting": noNetwork,
			"the handler waits for locks longer than a claim does":  oneWriter,
			"a shorter wait is the claim's alone":                   oneWriter,

			"each error code of COMMIT tells whether the outcome is known": "COMMIT fails for few reasons; TestSQLiteRefusedCommit has them",
			"purge spares a row that a transaction is forgetting":          oneWriter,
			"a source that another process is registering is waited for":   oneWriter,
			"a snapshot older than the purge does not hide it": oneWriter +
				"; TestSQLiteClaimAfterRead shows what becomes of a reader",
		},
	}
}

// sqliteDB is a file under test.
type sqliteDB struct {
	dsn string
	db  *sql.DB // waits long for locks
	own *sql.DB // for the caller's transactions: waits as briefly as a node
}

func newSQLiteDB(t *testing.T) deduptest.DB[*sql.Tx] {
	d := openSQLite(t)
	return deduptest.DB[*sql.Tx]{
		Open: func(t *testing.T, o deduptest.Options) dedup.Store[*sql.Tx] { return d.open(t, d.dsn, o) },
		Tx: func(ctx context.Context, _ deduptest.Options, fn func(*sql.Tx) error) error {
			return inTx(ctx, d.own, nil, fn)
		},
		Effect:   effect(`INSERT INTO effects (name) VALUES (?)`),
		Effects:  func(t *testing.T) []string { return stringsOf(t, d.db, `SELECT name FROM effects`) },
		Age:      d.age,
		SetClock: func(s dedup.Store[*sql.Tx], now func() time.Time) { s.(*node).SetClock(now) },
		Misuse:   sqliteMisuses(),
		Raise:    raiseSQLite,
		LockWait: func(ctx context.Context, tx *sql.Tx) (wait string, err error) {
			err = tx.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&wait)
			return wait, err
		},
		Wrote: func(ctx context.Context, tx *sql.Tx) (yes bool, err error) {
			// rows that the last writing statement changed
			err = tx.QueryRowContext(ctx, `SELECT changes() > 0`).Scan(&yes)
			return yes, err
		},
		Plant: func(t *testing.T, at dedup.KeyHash, k dedup.Key) {
			exec(t, d.db, `INSERT INTO processed_messages (key, expires_at, consumer, tenant, id) VALUES (?, ?, ?, nullif(?, ''), ?)`,
				at[:], time.Now().Add(24*time.Hour).UnixMicro(), k.Consumer, k.Tenant, k.ID)
		},
		Connections: func(_ *testing.T, s dedup.Store[*sql.Tx]) int { return s.(*node).db.Stats().InUse },
		NoSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			return d.open(t, "file:"+filepath.Join(t.TempDir(), "empty.db")+walMode, deduptest.Options{})
		},
		OldSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			exec(t, d.db, `UPDATE txonce_schema SET version = version + 100, works_with = works_with + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NewerSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			exec(t, d.db, `UPDATE txonce_schema SET version = version + 100`)
			return d.open(t, d.dsn, deduptest.Options{})
		},
		NotDurable: func(t *testing.T) dedup.Store[*sql.Tx] {
			return d.open(t, d.dsn+"&_pragma=synchronous(normal)", deduptest.Options{})
		},
	}
}

const walMode = "?_pragma=journal_mode(wal)"

// emptySQLite is a file with empty tables. Copying it is much faster than applying the migrations.
var emptySQLite = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "txonce-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "empty.db")
	db, err := sql.Open("sqlite", "file:"+path+walMode)
	if err != nil {
		return nil, err
	}
	err = migrations.Apply(context.Background(), db, "sqlite", "")
	if err == nil {
		_, err = db.Exec(`CREATE TABLE effects (name TEXT NOT NULL)`)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		// closing the last connection moves the log's contents into the file
		return nil, err
	}
	return os.ReadFile(path)
})

func openSQLite(t testing.TB) *sqliteDB {
	file, err := emptySQLite()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &sqliteDB{dsn: "file:" + path + walMode}
	d.db = openDB(t, "sqlite", d.dsn+"&_pragma=busy_timeout(10000)&_txlock=immediate")
	d.own = openDB(t, "sqlite", d.dsn+"&_txlock=immediate")
	return d
}

func (d *sqliteDB) open(t testing.TB, dsn string, o deduptest.Options) *node {
	return newNode(t, openDB(t, "sqlite", dsn), sqlstore.Config{
		Dialect: sqlstore.SQLite, ClaimTimeout: o.Wait,
		Compact: o.Compact,
	})
}

func (d *sqliteDB) age(t *testing.T, by time.Duration) {
	for _, q := range []string{
		`UPDATE processed_messages SET expires_at = expires_at - ?1`,
		`UPDATE txonce_windows SET first_run = first_run - ?1, used_until = used_until - ?1`,
		`UPDATE txonce_sweep SET forgotten_until = forgotten_until - ?1, lease_until = lease_until - ?1`,
		`UPDATE operator_actions SET next_at = next_at - ?1`,
	} {
		exec(t, d.db, q, by.Microseconds())
	}
}

// sqliteProvocations make SQLite fail with each code. Some of these errors roll the transaction back.
var sqliteProvocations = map[string]struct {
	statements []string
	as         deduptest.Code
}{
	"no such table": {
		[]string{`INSERT INTO missing VALUES (1)`},
		deduptest.Code{Retryable: true, Ambiguous: true},
	},
	"no such column": {
		[]string{`UPDATE effects SET missing = 1`},
		deduptest.Code{Retryable: true, Ambiguous: true},
	},
	"too few columns": {
		[]string{`INSERT INTO effects (missing) VALUES (1)`},
		deduptest.Code{Retryable: true, Ambiguous: true},
	},
	"no such function": {[]string{`SELECT missing(1)`}, deduptest.Code{Retryable: true, Ambiguous: true}},
	"syntax error":     {[]string{`INSERT INTO INTO effects`}, deduptest.Code{Retryable: true, Ambiguous: true}},
	"readonly":         {[]string{`PRAGMA query_only = 1`, `DELETE FROM effects`}, deduptest.Code{Retryable: true}},
	"full": {
		[]string{`PRAGMA max_page_count = 1`, `CREATE TABLE big AS SELECT randomblob(100000) AS b`},
		deduptest.Code{Retryable: true},
	},
	"not null": {[]string{`INSERT INTO effects (name) VALUES (NULL)`}, deduptest.Code{}},
	"unique": {
		[]string{`CREATE TEMP TABLE u (x UNIQUE)`, `INSERT INTO u VALUES (1), (1)`},
		deduptest.Code{},
	},
	"check": {
		[]string{`CREATE TEMP TABLE c (x CHECK (x > 1))`, `INSERT INTO c VALUES (1)`},
		deduptest.Code{},
	},
	"datatype": {
		[]string{`CREATE TEMP TABLE d (x INTEGER) STRICT`, `INSERT INTO d VALUES ('text')`},
		deduptest.Code{},
	},
	"malformed JSON":      {[]string{`SELECT json('{')`}, deduptest.Code{}},
	"overflow":            {[]string{`SELECT abs(-9223372036854775808)`}, deduptest.Code{}},
	"raised by a trigger": {[]string{`CREATE TEMP TABLE r (x)`, `CREATE TEMP TRIGGER rt BEFORE INSERT ON r BEGIN SELECT raise(ABORT, 'no'); END`, `INSERT INTO r VALUES (1)`}, deduptest.Code{}},
	"too big":             {[]string{`SELECT zeroblob(2000000000)`}, deduptest.Code{}},
}

func sqliteCodes() map[string]deduptest.Code {
	codes := map[string]deduptest.Code{}
	for code, p := range sqliteProvocations {
		codes[code] = p.as
	}
	return codes
}

// raiseSQLite raises an error, and resets what the provocation set on the connection for its next user.
func raiseSQLite(ctx context.Context, tx *sql.Tx, code string) (err error) {
	for _, q := range sqliteProvocations[code].statements {
		if _, err = tx.ExecContext(ctx, q); err != nil {
			break
		}
	}
	for _, q := range []string{`PRAGMA query_only = 0`, `PRAGMA max_page_count = 1073741823`} {
		if _, reset := tx.ExecContext(ctx, q); reset != nil {
			return fmt.Errorf("reset after %w: %v", err, reset)
		}
	}
	return err
}

// The SQL function test_cancel calls the function in sqliteCancels that its argument names. A timer could fire before
// the statement begins.
var (
	sqliteCalls   atomic.Int64
	sqliteCancels sync.Map
)

func registerSQLiteCancel() {
	sqlite.MustRegisterScalarFunction("test_cancel", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		cancel, _ := sqliteCancels.Load(args[0])
		cancel.(context.CancelFunc)()
		return "many", nil
	})
}

// sqliteMisuses returns all ways for a handler to end or lose its transaction on SQLite.
func sqliteMisuses() []deduptest.Misuse[*sql.Tx] {
	return append(misuses(),
		unstoppable("INSERT OR ROLLBACK that conflicts", `CREATE TEMP TABLE u (x UNIQUE)`,
			`INSERT OR ROLLBACK INTO u VALUES (1), (1)`),
		text("disk full", false, `PRAGMA max_page_count = 1`, `CREATE TABLE big AS SELECT randomblob(100000) AS b`),
		text("a nested BEGIN", false, `BEGIN IMMEDIATE`),
		text("SQL error", false, `INSERT INTO effects (name) VALUES (NULL)`),
		deduptest.Misuse[*sql.Tx]{Name: "a write that is cancelled half-way", Ends: true, Reported: autocommit, Do: func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			call := sqliteCalls.Add(1)
			sqliteCancels.Store(call, cancel)
			defer sqliteCancels.Delete(call)
			_, err := tx.ExecContext(ctx, `INSERT INTO effects (name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
				SELECT iif(i = 1000, test_cancel(?), 'many') FROM n`, call)
			return err
		}},
		deduptest.Misuse[*sql.Tx]{Name: "rows of a write left open", Do: func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, `INSERT INTO effects (name) VALUES ('x'), ('y') RETURNING name`) //nolint:sqlclosecheck // left open on purpose
			if err != nil {
				return err
			}
			rows.Next()
			return rows.Err()
		}},
	)
}
