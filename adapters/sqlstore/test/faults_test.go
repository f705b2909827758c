package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Each error that a handler returns must be attributed to the handler, to the database, or to either. The suite tests
// each code.
func TestWhoseErrorItIs(t *testing.T) {
	const (
		handlers = iota
		databases
		either // Retryable and Ambiguous
	)
	send := func(statements ...string) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) (err error) {
			for _, q := range statements {
				if _, failed := tx.ExecContext(ctx, q); failed != nil {
					err = failed
				}
			}
			return err
		}
	}
	elsewhere := func(err error) func(context.Context, *sql.Tx) error {
		return func(context.Context, *sql.Tx) error { return fmt.Errorf("charge: %w", err) }
	}
	raise := func(code string) string {
		return `DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '` + code + `'; END $$`
	}
	type test struct {
		name string
		do   func(ctx context.Context, tx *sql.Tx) error
		want int
	}
	tests := map[string][]test{
		"sqlite": {
			{"missing table", send(`INSERT INTO missing VALUES (1)`), either},
			{"missing column", send(`UPDATE effects SET missing = 1`), either},
			{"constraint", send(`INSERT INTO effects (name) VALUES (NULL)`), handlers},
			{
				"the database of another store is down", elsewhere(claims.Owner("pgxstore").Errorf("connect: refused")),
				handlers,
			},
			{
				"the schema of another store is missing", elsewhere(claims.Owner("pgxstore").Wrap(dedup.ErrSchema)),
				handlers,
			},
		},
		"postgres": {
			{"missing table", send(`INSERT INTO missing VALUES (1)`), either},
			{"missing column", send(`UPDATE effects SET missing = 1`), either},
			{"missing schema", send(`CREATE TABLE missing.t (n int)`), either},
			{"healed", send(`SAVEPOINT mine`, raise("40001"), `ROLLBACK TO mine`), handlers},
			{
				"healed, of a missing table", send(`SAVEPOINT mine`, `SELECT * FROM missing`, `ROLLBACK TO mine`),
				handlers,
			},
			{"another database is down", elsewhere(&pgconn.PgError{Code: "57P03"}), handlers},
			{"another database lacks a table", elsewhere(&pgconn.PgError{Code: "42P01"}), handlers},
			{"a trigger at COMMIT that lacks a table", send(`CREATE TABLE late (n int)`,
				`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO missing VALUES (1); END $$`,
				`CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`,
				`INSERT INTO late VALUES (1)`), either},
		},
		"mysql": {
			{"missing table", send(`INSERT INTO missing VALUES (1)`), either},
			{"missing column", send(`UPDATE effects SET missing = 1`), either},
			{"no permission", send(`SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1142`), either},
			{"constraint", send(`INSERT INTO effects (name) VALUES (NULL)`), handlers},
			{"lock timeout", send(`SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205`), databases},
			{"another database's deadlock", elsewhere(&mysql.MySQLError{Number: 1213}), handlers},
			{"another database takes no connection", elsewhere(&mysql.MySQLError{Number: 1040}), handlers},
			{"another database's connection is lost", elsewhere(mysql.ErrInvalidConn), handlers},
		},
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		for _, tt := range tests[db.dialect] {
			t.Run(tt.name, func(t *testing.T) {
				ctx := t.Context()
				err := s.InTx(ctx, []dedup.Record{record(tt.name)},
					func(tx *sql.Tx, _ []dedup.Claim) error { return tt.do(ctx, tx) })
				if err == nil || errors.Is(err, dedup.ErrTxEnded) {
					t.Fatalf("InTx = %v", err)
				}
				if got := s.Retryable(err); got != (tt.want != handlers) {
					t.Errorf("Retryable(%v) = %v", err, got)
				}
				if got := s.Ambiguous(err); got != (tt.want == either) {
					t.Errorf("Ambiguous(%v) = %v", err, got)
				}
				if v := handle(t, s, tt.name); v != dedup.First {
					t.Errorf("claimed again: %v, want first", v)
				}
			})
		}
		// Errors of the Store's own statements are not ambiguous.
		exec(t, db.DB, `ALTER TABLE processed_messages RENAME TO processed_elsewhere`)
		err := s.InTx(t.Context(), []dedup.Record{record("late")}, func(*sql.Tx, []dedup.Claim) error { return nil })
		if !s.Retryable(err) || s.Ambiguous(err) {
			t.Errorf("without a table: %v: retryable %v, ambiguous %v; want retryable alone", err, s.Retryable(err),
				s.Ambiguous(err))
		}
	})
}

// If the server ends a transaction because its handler was idle for too long, the error names the limit. The handler
// may be at fault, or its process was suspended.
func TestIdleLimitIsNamed(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		count := `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`
		if db.dialect == "mysql" {
			count = `SELECT count(*) FROM ` + testdb.MySQLSessions(t) + ` WHERE id = ?`
		}
		if db.dialect == "sqlite" {
			return // SQLite has no such limit
		}
		ctx := t.Context()
		s := newNode(t, db.open(deduptest.Options{}).db,
			sqlstore.Config{Dialect: sqlstore.Dialect(db.dialect), IdleInTxTimeout: time.Second})
		for name, then := range map[string]func(tx *sql.Tx) error{
			"returns nil":    func(*sql.Tx) error { return nil },
			"writes":         func(tx *sql.Tx) error { _, err := tx.Exec(`INSERT INTO effects (name) VALUES ('x')`); return err },
			"returns others": func(*sql.Tx) error { return errUndo },
		} {
			t.Run(name, func(t *testing.T) {
				err := s.InTx(ctx, []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
					var id, left int
					if err := tx.QueryRow(serverID[db.dialect]).Scan(&id); err != nil {
						t.Fatal(err)
					}
					for left = 1; left > 0; <-time.After(20 * time.Millisecond) {
						if err := db.QueryRow(count, id).Scan(&left); err != nil {
							t.Fatal(err)
						}
					}
					return then(tx)
				})
				if err == nil || !s.Retryable(err) || !s.Ambiguous(err) || errors.Is(err, dedup.ErrTxEnded) ||
					!strings.Contains(err.Error(), "Config.IdleInTxTimeout, 1s") {
					t.Errorf("InTx = %v, retryable %v, ambiguous %v; want both, and the limit named", err,
						s.Retryable(err), s.Ambiguous(err))
				}
			})
		}
		if v := handle(t, s, "k"); v != dedup.First {
			t.Errorf("claimed again: %v, want first", v)
		}
	})
}

// After a migration each connection reports its stale plan once. This must not count as an attempt of the message.
func TestPostgresStalePlanIsNotTheMessages(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	read := func(id string) error {
		return s.InTx(t.Context(), []dedup.Record{record(id)}, func(tx *sql.Tx, _ []dedup.Claim) error {
			rows, err := tx.Query(`SELECT * FROM locks WHERE name = $1`, "x")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		})
	}
	if err := read("before"); err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `ALTER TABLE locks ADD COLUMN more text`)
	err := read("after")
	if !s.Retryable(err) || s.Ambiguous(err) {
		t.Errorf("with a stale plan: %v: retryable %v, ambiguous %v; want retryable alone", err, s.Retryable(err),
			s.Ambiguous(err))
	}
	if err := read("after"); err != nil {
		t.Errorf("the next time: %v", err)
	}
	err = s.InTx(t.Context(), []dedup.Record{record("not supported")}, func(tx *sql.Tx, _ []dedup.Claim) error {
		_, err := tx.Exec(`DO $$ BEGIN RAISE EXCEPTION 'not supported' USING ERRCODE = '0A000'; END $$`)
		return err
	})
	if err == nil || s.Retryable(err) {
		t.Errorf("an unsupported feature: %v is retryable", err)
	}
}

func TestPostgresRegisterRefusesOtherEncodings(t *testing.T) {
	server := testdb.Postgres(t)
	d := openPostgres(t, server)
	var name string
	if err := d.db.QueryRow(`SELECT 'txonce_latin1_' || pg_backend_pid() || '_' || extract(epoch FROM clock_timestamp())::bigint`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `CREATE DATABASE `+name+` ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() { exec(t, d.db, `DROP DATABASE `+name) })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	s := newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres})
	err = s.Register(t.Context(), "billing", 0)
	if err == nil || !strings.Contains(err.Error(), "LATIN1") || s.Retryable(err) {
		t.Errorf("Register = %v, want a refusal of LATIN1", err)
	}
	if err := db.Close(); err != nil { // close the pool before the test drops the database
		t.Error(err)
	}
}

// Without a write-ahead log, COMMIT waits for readers.
func TestSQLiteCommitWaitsForReaders(t *testing.T) {
	d := openSQLite(t)
	exec(t, d.db, `PRAGMA journal_mode = delete`)
	d.dsn = strings.Replace(d.dsn, "journal_mode(wal)", "journal_mode(delete)", 1)
	s := d.open(t, d.dsn, deduptest.Options{})
	s.AnswerWithin(2 * time.Minute)
	readers := openDB(t, "sqlite", d.dsn)
	exec(t, d.db, `INSERT INTO effects (name) VALUES ('a'), ('b')`)
	for i := range 3 {
		rows, err := readers.Query(`SELECT name FROM effects`)
		if err != nil {
			t.Fatal(err)
		}
		rows.Next()
		done := make(chan error, 1)
		go func() {
			done <- s.InTx(t.Context(), []dedup.Record{record(fmt.Sprint(i))},
				func(*sql.Tx, []dedup.Claim) error { return nil })
		}()
		for waits := false; !waits; { // a waiting COMMIT blocks new readers
			var n int
			err := readers.QueryRow(`SELECT count(*) FROM effects`).Scan(&n)
			waits = err != nil && strings.Contains(err.Error(), "locked")
			if len(done) > 0 {
				break
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil { //nolint:sqlclosecheck // COMMIT waits until these rows are closed
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("InTx = %v", err)
		}
	}
}
