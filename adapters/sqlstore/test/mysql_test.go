package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// askingInnoDB is locked while a test queries information_schema.innodb_trx.
var askingInnoDB sync.Mutex

// On MySQL the Store sends other claim statements than on MariaDB, with another limit for the wait.
func TestMySQL(t *testing.T) {
	t.Parallel()
	const inSeconds = "MySQL counts waits for locks in whole seconds, and the case waits for less than a second; TestMySQLCountsWaitsInSeconds covers them"
	for name, isMySQL := range map[string]bool{"mariadb": false, "mysql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // these tests mostly wait
			selected := isolations.Rest(0)
			doesNotApply := map[string]string{"each error code of COMMIT tells whether the outcome is known": "COMMIT checks no constraints and runs no triggers"}
			if isMySQL {
				selected = isolations.Share(0, 2)
				doesNotApply["a batch of held keys waits no longer than one key"] = inSeconds
				doesNotApply["commit outcome unknown: a claim that gives up waiting"] = inSeconds
			}
			deduptest.TestStore(t, deduptest.Harness[*sql.Tx]{
				New:        func(t *testing.T) deduptest.DB[*sql.Tx] { return newMySQLDB(t) },
				Isolations: isolations,
				Select:     selected,
				Codes:      mysqlCodes(),

				DoesNotApply: doesNotApply,
			})
		})
	}
}

// mysqlDB is a database under test.
type mysqlDB struct {
	dsn     string
	db      *sql.DB
	isMySQL bool // and not MariaDB
	kept    bool // other tests use the connections again
}

func newMySQLDB(t *testing.T) deduptest.DB[*sql.Tx] {
	dsn := testdb.ReusedMySQL(t, mysqlSuiteTables)
	d := &mysqlDB{dsn: dsn, db: keptDB(t, "mysql", dsn), isMySQL: testdb.OnMySQL(t), kept: true}
	return deduptest.DB[*sql.Tx]{
		Open: func(t *testing.T, o deduptest.Options) dedup.Store[*sql.Tx] { return d.open(t, d.dsn, o) },
		Tx: func(ctx context.Context, o deduptest.Options, fn func(*sql.Tx) error) error {
			return inTx(ctx, d.db, &sql.TxOptions{Isolation: level(o.Isolation)}, fn)
		},
		Effect:   effect(`INSERT INTO effects (name) VALUES (?)`),
		Effects:  func(t *testing.T) []string { return stringsOf(t, d.db, `SELECT name FROM effects`) },
		Age:      d.age,
		SetClock: func(s dedup.Store[*sql.Tx], now func() time.Time) { s.(*node).SetClock(now) },
		Misuse:   mysqlMisuses(d),
		Raise: func(ctx context.Context, tx *sql.Tx, code string) error {
			_, err := tx.ExecContext(ctx, `SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = `+code)
			return err
		},
		Lock: func(ctx context.Context, tx *sql.Tx, name string) error {
			if _, err := d.db.ExecContext(ctx, `INSERT IGNORE INTO locks (name) VALUES (?)`, name); err != nil {
				return err
			}
			var found string
			return tx.QueryRowContext(ctx, `SELECT name FROM locks WHERE name = ? FOR UPDATE`, name).Scan(&found)
		},
		LockWait: func(ctx context.Context, tx *sql.Tx) (wait string, err error) {
			limit := "@@max_statement_time"
			if d.isMySQL {
				limit = "@@max_execution_time"
			}
			err = tx.QueryRowContext(ctx, `SELECT CONCAT(@@innodb_lock_wait_timeout, ' ', `+limit+`)`).Scan(&wait)
			return wait, err
		},
		Wrote: func(ctx context.Context, tx *sql.Tx) (yes bool, err error) {
			// the server answers from a cached copy until no query has come for 100 ms, also none of another process
			askingInnoDB.Lock()
			defer askingInnoDB.Unlock()
			for range 50 {
				<-time.After(130 * time.Millisecond)
				// The random number makes the text unique: a copy of it has no row in this table.
				err = tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT trx_rows_modified > 0 FROM information_schema.innodb_trx
					WHERE trx_query LIKE '%%%x%%' AND trx_mysql_thread_id = CONNECTION_ID()`, rand.Uint64())).Scan(&yes)
				if failed := new(mysql.MySQLError); err != sql.ErrNoRows &&
					(!errors.As(err, &failed) || failed.Number != 3854) {
					// see testdb.MySQLSessions
					break
				}
			}
			return yes, err
		},
		Plant: func(t *testing.T, at dedup.KeyHash, k dedup.Key) {
			exec(t, d.db, "INSERT INTO processed_messages (`key`, token, expires_at, consumer, tenant, id) VALUES (UNHEX(?), '', ?, ?, nullif(?, ''), ?)",
				fmt.Sprintf("%x", at), time.Now().Add(24*time.Hour).UnixMicro(), k.Consumer, k.Tenant, k.ID)
		},
		// information_schema.innodb_trx is cached for too long.
		RegisterSource: registerSource(d.db, `INSERT INTO txonce_sources (consumer, source, first_run) VALUES (?, '', 1), (?, ?, 1)`, serverID["mysql"],
			`SELECT count(*) > 0 FROM `+testdb.MySQLSessions(t)+
				` WHERE id <> ? AND db = DATABASE() AND info LIKE 'INSERT INTO %txonce_sources%'`),
		Connections: func(_ *testing.T, s dedup.Store[*sql.Tx]) int { return s.(*node).db.Stats().InUse },
		Faulty: func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[*sql.Tx] {
			return d.open(t, wireproxy.MySQL(t, d.dsn, f), o)
		},
		NoSchema: func(t *testing.T) dedup.Store[*sql.Tx] {
			return d.open(t, testdb.MySQL(t), deduptest.Options{})
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
			n := d.open(t, d.dsn, deduptest.Options{})
			n.Pretend("innodb_flush_log_at_trx_commit", "2") // this setting exists only once per server
			return n
		},
	}
}

const mysqlSuiteTables = `CREATE TABLE effects (name VARCHAR(255) NOT NULL); CREATE TABLE locks (name VARCHAR(255) PRIMARY KEY)`

func openMySQL(t testing.TB) *mysqlDB {
	dsn := testdb.ReusedMySQL(t, mysqlSuiteTables)
	return &mysqlDB{dsn: dsn, db: openDB(t, "mysql", dsn), isMySQL: testdb.OnMySQL(t)}
}

func (d *mysqlDB) open(t testing.TB, dsn string, o deduptest.Options) *node {
	open := openDB
	if d.kept && dsn == d.dsn {
		open = keptDB
	}
	db := open(t, "mysql", dsn)
	db.SetMaxOpenConns(16)
	n := newNode(t, db, sqlstore.Config{
		Dialect: sqlstore.MySQL, Isolation: level(o.Isolation), ClaimTimeout: o.Wait, Compact: o.Compact,
	})
	return n
}

func (d *mysqlDB) age(t *testing.T, by time.Duration) {
	for _, q := range []string{
		`UPDATE processed_messages SET expires_at = expires_at - ?`,
		`UPDATE txonce_windows SET first_run = first_run - ?, used_until = used_until - ?`,
		`UPDATE txonce_sweep SET forgotten_until = forgotten_until - ?, lease_until = lease_until - ?`,
		`UPDATE operator_actions SET next_at = next_at - ?`,
	} {
		args := []any{by.Microseconds(), by.Microseconds()}
		exec(t, d.db, q, args[:strings.Count(q, "?")]...)
	}
}

// mysqlCodes returns the server's error numbers.
func mysqlCodes() map[string]deduptest.Code {
	codes := map[string]deduptest.Code{}
	for _, n := range []int{
		1021, 1030, 1037, 1038, 1053, 1114, 1158, 1180, 1290, 1412, 1665, 1792, 1836, 1927,
	} {
		codes[fmt.Sprint(n)] = deduptest.Code{Retryable: true}
	}
	for _, n := range []int{1020, 1205, 3058, 3572} {
		codes[fmt.Sprint(n)] = deduptest.Code{Retryable: true, Class: driver.FaultContention}
	}
	for _, n := range []int{1044, 1046, 1054, 1064, 1142, 1146} { // permissions, databases, tables, columns, syntax
		codes[fmt.Sprint(n)] = deduptest.Code{Retryable: true, Ambiguous: true}
	}
	for _, n := range []int{1317, 1969, 3024} {
		codes[fmt.Sprint(n)] = deduptest.Code{Retryable: true, Ambiguous: true, Class: driver.FaultTimeLimit}
	}
	codes["4031"] = deduptest.Code{Retryable: true, Ambiguous: true, Class: driver.FaultIdleLimit}
	// If the transaction is still open, these errors come from another connection where the handler cannot log in, or
	// from another transaction that was the victim of a deadlock: a deadlock here would have ended this transaction.
	for _, n := range []int{1040, 1045, 1049, 1213} {
		codes[fmt.Sprint(n)] = deduptest.Code{}
	}
	for _, n := range []int{
		1048, 1062, 1153, 1216, 1217, 1264, 1292, 1364, 1365, 1366, 1406, 1451, 1452, 1644, 3140, 3819, 4025,
	} {
		codes[fmt.Sprint(n)] = deduptest.Code{}
	}
	return codes
}

// mysqlMisuses returns all ways for a handler to end or lose its transaction on MySQL. Autocommit is off, so nothing
// that the handler writes afterwards is committed.
func mysqlMisuses(d *mysqlDB) []deduptest.Misuse[*sql.Tx] {
	return []deduptest.Misuse[*sql.Tx]{
		{Name: "tx.Commit", Ends: true, Do: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }},
		{Name: "tx.Rollback", Ends: true, Do: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }},
		text("COMMIT as text", true, `COMMIT`),
		text("ROLLBACK as text", true, `ROLLBACK`),
		text("COMMIT as text behind a comment", true, "-- bye\n /* a */ commit work"),
		text("COMMIT and BEGIN as text", true, `COMMIT`, `BEGIN`),
		text("ROLLBACK and BEGIN as text", true, `ROLLBACK`, `BEGIN`),
		text("ROLLBACK AND CHAIN as text", true, `ROLLBACK AND CHAIN`),
		text("COMMIT AND CHAIN as text", true, `COMMIT AND CHAIN`),
		text("ROLLBACK TO a savepoint", false, `SAVEPOINT mine`, `SELECT 1`, `ROLLBACK TO SAVEPOINT mine`),
		text("a nested BEGIN", true, `START TRANSACTION`),
		text("DDL", true, `CREATE TABLE also (n INT)`, `DROP TABLE also`),
		unstoppable("SET autocommit", `ROLLBACK`, `SET autocommit = 1`),
		text("swallowed SQL error", false, `INSERT INTO effects (name) VALUES (NULL)`),
		text("connection killed", false, `KILL CONNECTION_ID()`),
		{Name: "swallowed deadlock", Ends: true, Do: d.deadlock},
		{Name: "swallowed lock timeout", Do: d.lockTimeout},
		{Name: "rows left open", Do: func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, `SELECT 1 FROM information_schema.columns AS a CROSS JOIN information_schema.columns AS b LIMIT 100000`) //nolint:sqlclosecheck // left open on purpose
			if err != nil {
				return err
			}
			rows.Next()
			return rows.Err()
		}},
	}
}

// deadlock makes tx the victim of a deadlock.
func (d *mysqlDB) deadlock(ctx context.Context, tx *sql.Tx) error {
	if _, err := d.db.ExecContext(ctx, `INSERT IGNORE INTO locks (name) VALUES ('a'), ('b'), ('c1'), ('c2'), ('c3'), ('c4')`); err != nil {
		return err
	}
	other, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer other.Rollback()
	lock := `UPDATE locks SET name = name WHERE name = ?`
	for _, q := range []string{ // the victim is the transaction that has changed fewer rows
		`INSERT INTO locks (name) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT CONCAT('weight', i) FROM n`, `SELECT 1 FROM locks WHERE name = 'b' FOR UPDATE`,
	} {
		if _, err := other.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `SELECT 1 FROM locks WHERE name = 'a' FOR UPDATE`); err != nil {
		return err
	}
	waits := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(ctx, lock, "a")
		waits <- err
	}()
	_, err = tx.ExecContext(ctx, `SELECT 1 FROM locks WHERE name = 'b' FOR UPDATE`)
	if <-waits != nil || err == nil || !strings.Contains(err.Error(), "1213") {
		return fmt.Errorf("no deadlock: %w", err)
	}
	return err
}

// lockTimeout waits for a lock until the wait times out. The server undoes only that statement, unless
// innodb_rollback_on_timeout is on.
func (d *mysqlDB) lockTimeout(ctx context.Context, tx *sql.Tx) error {
	if _, err := d.db.ExecContext(ctx, `INSERT IGNORE INTO locks (name) VALUES ('held')`); err != nil {
		return err
	}
	other, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer other.Rollback()
	if _, err := other.ExecContext(ctx, `SELECT 1 FROM locks WHERE name = 'held' FOR UPDATE`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SET @was = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = 1`); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE locks SET name = name WHERE name = 'held'`)
	if _, restore := tx.ExecContext(ctx, `SET innodb_lock_wait_timeout = @was`); restore != nil {
		return restore
	}
	return err
}

// isolationParameter is the name in a DSN of the session's isolation level.
func isolationParameter(t *testing.T) string {
	if testdb.OnMySQL(t) {
		return "transaction_isolation"
	}
	return "tx_isolation" // the only name before MariaDB 11.1
}
