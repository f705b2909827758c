package sqlstore_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// alone returns a node with one connection, so that each handler gets the session of the previous one.
func alone(db fixture) *node {
	s := db.open(deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	return s
}

// handle claims id, sends the statements in the same transaction, and commits.
func handle(t *testing.T, s *node, id string, statements ...string) dedup.Verdict {
	t.Helper()
	var verdict dedup.Verdict
	err := s.InTx(t.Context(), []dedup.Record{record(id)}, func(tx *sql.Tx, claims []dedup.Claim) error {
		verdict = claims[0].Verdict
		for _, q := range statements {
			if _, err := tx.Exec(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return verdict
}

// A setting that one handler changes in its session must not affect the next handler.
func TestASettingOfAHandlerIsNotTheNextOnes(t *testing.T) {
	settings := map[string][][2]string{ // a statement that changes a setting, and an expression that returns it
		"postgres": {
			{`SET search_path = pg_catalog`, `current_setting('search_path')`},
			{`SET synchronous_commit = off`, `current_setting('synchronous_commit')`},
			{`SET ROLE pg_monitor`, `current_user::text`},
			{`SET SESSION AUTHORIZATION pg_monitor`, `session_user::text`},
			{`SET session_replication_role = replica`, `current_setting('session_replication_role')`},
			{
				`SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`,
				`current_setting('default_transaction_read_only')`,
			},
			{`SET statement_timeout = '77s'`, `current_setting('statement_timeout')`},
			{`SET lock_timeout = '77s'`, `current_setting('lock_timeout')`},
			{`SET TIME ZONE 'Asia/Tokyo'`, `current_setting('TimeZone')`},
			{`SET bytea_output = escape`, `current_setting('bytea_output')`},
		},
		"mysql": {
			{`USE information_schema`, `DATABASE()`},
			{`SET SESSION sql_mode = 'ANSI'`, `@@sql_mode`},
			{`SET SESSION foreign_key_checks = 0`, `@@foreign_key_checks`},
			{`SET SESSION unique_checks = 0`, `@@unique_checks`},
			{`SET SESSION transaction_isolation = 'READ-UNCOMMITTED'`, `@@tx_isolation`},
			{`SET SESSION innodb_lock_wait_timeout = 1`, `@@innodb_lock_wait_timeout`},
			{`SET SESSION max_statement_time = 77`, `@@max_statement_time`},
			{`SET SESSION completion_type = 1`, `@@completion_type`},
			{`SET SESSION time_zone = '+05:00'`, `@@time_zone`},
			{`SET NAMES latin1`, `@@character_set_client`},
			{`SET SESSION sql_select_limit = 1`, `@@sql_select_limit`},
			{`SET SESSION check_constraint_checks = 0`, `@@check_constraint_checks`},
			{`SET timestamp = UNIX_TIMESTAMP() + 30 * 86400`, `YEAR(UTC_TIMESTAMP()) * 100 + MONTH(UTC_TIMESTAMP())`},
			{`SET SESSION system_versioning_asof = '2020-01-01 00:00:00'`, `@@system_versioning_asof`},
			{`SET timestamp = 1600000000`, `YEAR(UTC_TIMESTAMP())`},
		},
		"sqlite": {
			{`PRAGMA query_only = 1`, `query_only FROM pragma_query_only`},
			{`PRAGMA locking_mode = exclusive`, `locking_mode FROM pragma_locking_mode`},
			{`PRAGMA ignore_check_constraints = 1`, `ignore_check_constraints FROM pragma_ignore_check_constraints`},
			{`PRAGMA recursive_triggers = 1`, `recursive_triggers FROM pragma_recursive_triggers`},
		},
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		for _, setting := range settings[db.dialect] {
			if db.isMySQL {
				if setting = onMySQL(setting); setting[0] == "" {
					continue
				}
			}
			t.Run(setting[0], func(t *testing.T) {
				s, show := alone(db), `SELECT `+setting[1]
				var before, after string
				if err := s.db.QueryRow(show).Scan(&before); err != nil {
					t.Fatal(err)
				}
				if setting[0] == `SET SESSION transaction_isolation = 'READ-UNCOMMITTED'` && !db.isMySQL {
					// this name works on both servers
					setting[0] = `SET SESSION tx_isolation = 'READ-UNCOMMITTED'`
				}
				handle(t, s, setting[0], setting[0])
				if err := s.db.QueryRow(show).Scan(&after); err != nil {
					t.Fatal(err)
				}
				if after != before {
					t.Errorf("%s is %q after the handler, and was %q", setting[1], after, before)
				}
				for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
					if v := handle(t, s, "next to "+setting[0]); v != want {
						t.Errorf("next message: %v, want %v", v, want)
					}
				}
			})
		}
	})
}

// Other code of the application may change the clock of a connection. A claim with a clock of the past would be swept
// too early.
func TestAClaimNeedsTheServersClock(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	claim := func(id string) (expires time.Time, err error) {
		err = s.InTx(t.Context(), []dedup.Record{{Key: dedup.Key{Consumer: "suite", ID: id}, Window: 24 * time.Hour}}, func(_ *sql.Tx, claims []dedup.Claim) error {
			expires = claims[0].ExpiresAt
			return nil
		})
		return expires, err
	}
	want, err := claim("before")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(`SET timestamp = UNIX_TIMESTAMP() - 7200`); err != nil {
		t.Fatal(err)
	}
	if expires, err := claim("with a clock of the past"); err == nil {
		t.Errorf("a claim with a clock of the past expires at %v, and one before it at %v", expires, want)
	}
	if expires, err := claim("after"); err != nil || expires.Before(want) {
		t.Errorf("the next claim expires at %v (%v), and one before it at %v", expires, err, want)
	}
}

// After a failover, the pool may keep connections to the former primary, which accepts no writes.
func TestASessionThatAcceptsNoWritesIsClosed(t *testing.T) {
	readOnly := map[string]string{
		"postgres": `SET default_transaction_read_only = on`,
		"mysql":    `SET SESSION tx_read_only = 1`,
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		if readOnly[db.dialect] == "" {
			return
		}
		s := alone(db)
		claim := func(consumer string) error {
			key := dedup.Key{Consumer: consumer, ID: rand.Text()}
			return s.InTx(t.Context(), []dedup.Record{{Key: key}}, func(*sql.Tx, []dedup.Claim) error { return nil })
		}
		for what, do := range map[string]func() error{
			"claim":           func() error { return claim("suite") },
			"first of a name": func() error { return claim(rand.Text()) },
			"purge": func() error {
				_, err := s.Purge(t.Context(), dedup.Sweep{Owner: rand.Text(), Lease: time.Millisecond, Limit: 10})
				return err
			},
			"relay": func() error {
				session, err := s.Open(t.Context(), driver.SessionOptions{Name: "relay", TTL: time.Minute})
				if err == nil {
					_, err = session.Renew(t.Context())
				}
				return err
			},
		} {
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if _, err := s.db.Exec(onServer(db, readOnly[db.dialect])); err != nil {
				t.Fatal(err)
			}
			first, second := do(), do()
			if first == nil || second != nil {
				t.Errorf("%s in a session that accepts no writes = %v, and then %v; want an error, and then nil on another connection", what, first, second)
			}
			s.db.SetMaxIdleConns(0) // closes the connection for the next
			s.db.SetMaxIdleConns(1)
		}
	})
}

// serverID returns the ID of a connection on the server.
var serverID = map[string]string{"postgres": `SELECT pg_backend_pid()`, "mysql": `SELECT CONNECTION_ID()`}

// A setting that ends with the transaction does not close the connection.
func TestALocalSettingKeepsTheConnection(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		statements := map[string][]string{
			"postgres": {
				`SET LOCAL search_path = pg_catalog`, `SET LOCAL ROLE pg_monitor`, `SET LOCAL synchronous_commit = off`,
				`RESET ROLE`,
				`CREATE TEMP TABLE brief (n int) ON COMMIT DROP`,
			},
			"mysql": {`SET @mine = 1`, `SET @other = 1`},
		}[db.dialect]
		if statements == nil {
			return // SQLite has no such settings
		}
		s := alone(db)
		before, after := 0, 0
		if err := s.db.QueryRow(serverID[db.dialect]).Scan(&before); err != nil {
			t.Fatal(err)
		}
		for _, q := range append(statements, `SELECT 1`) {
			handle(t, s, q, q)
		}
		if err := s.db.QueryRow(serverID[db.dialect]).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if before != after {
			t.Errorf("connection %d was closed, and is %d now", before, after)
		}
	})
}

// A handler cannot make its own COMMIT less durable, and the Store does not claim in a session whose commits are not
// durable.
func TestPostgresCommitsStayDurable(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	exec(t, d.db, `CREATE TABLE seen (sync text)`)
	exec(t, d.db, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	exec(t, d.db, `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	for _, q := range []string{`SET LOCAL synchronous_commit = off`, `SET synchronous_commit = off`} {
		handle(t, s, q, q, `INSERT INTO effects (name) VALUES ('x')`)
	}
	exec(t, s.db, `SET synchronous_commit = off`) // like other code that shares the pool
	handle(t, s, "after it", `INSERT INTO effects (name) VALUES ('x')`)
	if seen := stringsOf(t, d.db, `SELECT sync FROM seen`); strings.Join(seen, " ") != "on on on" {
		t.Errorf("synchronous_commit at COMMIT: %v, want on", seen)
	}
	forgetful := d.open(t, d.dsn+"&synchronous_commit=off", deduptest.Options{})
	err := forgetful.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error { return nil })
	if !errors.Is(err, dedup.ErrNotDurable) {
		t.Errorf("InTx without Register = %v, want ErrNotDurable", err)
	}
	theirs, err := forgetful.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forgetful.Claim(t.Context(), theirs, []dedup.Record{record("k")}); !errors.Is(err,
		dedup.ErrNotDurable) {
		t.Errorf("Claim in a transaction of the caller's = %v, want ErrNotDurable", err)
	}
	if err := theirs.Rollback(); err != nil {
		t.Fatal(err)
	}
	allowed := newNode(t, forgetful.db, sqlstore.Config{Dialect: sqlstore.Postgres, AllowAsyncCommit: true})
	if v := handle(t, allowed, "k"); v != dedup.First {
		t.Errorf("with AllowAsyncCommit: %v", v)
	}
}

// onMySQL returns a setting of MariaDB as MySQL knows it, or nothing.
func onMySQL(setting [2]string) [2]string {
	for _, only := range []string{"check_constraint_checks", "system_versioning_asof"} {
		if strings.Contains(setting[0], only) {
			return [2]string{}
		}
	}
	names := strings.NewReplacer("tx_isolation", "transaction_isolation", "max_statement_time", "max_execution_time")
	return [2]string{names.Replace(setting[0]), names.Replace(setting[1])}
}

// onServer returns a statement with the names that the server knows.
func onServer(db fixture, statement string) string {
	if db.isMySQL {
		return strings.ReplaceAll(statement, "tx_read_only", "transaction_read_only")
	}
	return statement
}
