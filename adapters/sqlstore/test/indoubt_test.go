package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// If a handler may have committed, its connection is lost and the database does not answer, the error says that the
// message is in doubt.
func TestNoAnswerLeavesDoubt(t *testing.T) {
	kill := map[string]string{"postgres": `SELECT pg_terminate_backend(%d)`, "mysql": `KILL %d`}
	eachDatabase(t, func(t *testing.T, db fixture) {
		if db.dialect == "sqlite" {
			return // SQLite has no connection that can be cut
		}
		other := db.open(deduptest.Options{})
		for _, commits := range []bool{true, false} {
			for name, silence := range map[string]func(t *testing.T, s *node){
				"database away": func(_ *testing.T, s *node) { s.db.Close() },
				"pool in use": func(t *testing.T, s *node) {
					s.AnswerWithin(time.Second)
					go func() {
						conn, err := s.db.Conn(t.Context()) // waits until the handler's connection is free
						if err == nil {
							<-t.Context().Done()
							conn.Close()
						}
					}()
					for s.db.Stats().WaitCount == 0 {
						<-time.After(time.Millisecond)
					}
				},
			} {
				t.Run(fmt.Sprint(name, ", commits ", commits), func(t *testing.T) {
					ctx, s, rec := t.Context(), alone(db), record(t.Name())
					warm(t, s)
					err := s.InTx(ctx, []dedup.Record{rec}, func(tx *sql.Tx, _ []dedup.Claim) error {
						var id int
						if err := tx.QueryRow(serverID[db.dialect]).Scan(&id); err != nil {
							return err
						}
						if commits {
							if _, err := tx.Exec(`COMMIT`); err != nil {
								return err
							}
						}
						exec(t, db.DB, fmt.Sprintf(kill[db.dialect], id))
						silence(t, s)
						return nil
					})
					var doubt *dedup.InDoubtError
					if !errors.As(err, &doubt) || errors.Is(err, dedup.ErrTxEnded) || !s.Retryable(err) {
						t.Fatalf("InTx = %v, retryable %v; want a Retryable InDoubtError", err, s.Retryable(err))
					}
					if !commits {
						claim(t, other, rec) // like another process
					}
					asked(t, other, rec, doubt, commits)
				})
			}
		}
	})
}

// asked claims rec, which is a duplicate, and checks the result of Committed in that transaction.
func asked(t *testing.T, s *node, rec dedup.Record, doubt *dedup.InDoubtError, want bool) {
	t.Helper()
	err := s.InTx(t.Context(), []dedup.Record{rec}, func(tx *sql.Tx, a []dedup.Claim) error {
		got, err := doubt.Committed(t.Context(), tx)
		if a[0].Verdict != dedup.Duplicate || got != want {
			t.Errorf("verdict %v, Committed = %v, want a duplicate and %v", a[0].Verdict, got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Each ErrTxEnded says whether the transaction was committed, however the handler ended it.
func TestErrTxEndedTellsWhetherItIsCommitted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		for name, end := range map[string]func(tx *sql.Tx) error{
			"tx.Commit": func(tx *sql.Tx) error { return tx.Commit() },
			"COMMIT":    func(tx *sql.Tx) error { _, err := tx.Exec(`COMMIT`); return err },
		} {
			for _, returns := range []error{nil, errUndo} {
				rec := record(fmt.Sprint(name, returns))
				err := s.InTx(t.Context(), []dedup.Record{rec},
					func(tx *sql.Tx, _ []dedup.Claim) error { return errors.Join(end(tx), returns) })
				var doubt *dedup.InDoubtError
				if !errors.Is(err, dedup.ErrTxEnded) || !errors.As(err, &doubt) || s.Retryable(err) {
					t.Fatalf("%s: InTx = %v, want an InDoubtError that is ErrTxEnded", name, err)
				}
				asked(t, s, rec, doubt, true)
				if got, err := doubt.Committed(t.Context(), s.db); !got || err != nil {
					t.Errorf("Committed through another type = %v, %v; want true", got, err)
				}
			}
		}
		// After the handler's ROLLBACK another transaction can claim the key.
		rec := record("rolled back")
		err := s.InTx(t.Context(), []dedup.Record{rec},
			func(tx *sql.Tx, _ []dedup.Claim) error { _, err := tx.Exec(`ROLLBACK`); return err })
		var doubt *dedup.InDoubtError
		if !errors.As(err, &doubt) {
			t.Fatalf("after ROLLBACK: %v", err)
		}
		claim(t, s, rec)
		asked(t, s, rec, doubt, db.dialect == "sqlite") // SQLite cannot tell claims of the same key apart
	})
}

// MariaDB rolls back the victim of a deadlock. The handler may return another error that hides the deadlock.
func TestMySQLDeadlockBehindAnotherError(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	own := errors.New("account is not available")
	attempt := func(then ...string) error {
		return s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
			if err := d.deadlock(context.WithoutCancel(t.Context()), tx); err == nil || !strings.Contains(err.Error(),
				"1213") {
				t.Fatal(err)
			}
			for _, q := range then {
				if _, err := tx.Exec(q); err != nil {
					t.Fatal(err)
				}
			}
			return own
		})
	}
	write := `INSERT INTO effects (name) VALUES ('x')`
	if err := attempt(write); err != own {
		t.Errorf("InTx = %v, want the handler's own error", err)
	}
	if n := len(stringsOf(t, d.db, `SELECT name FROM effects`)); n != 0 {
		t.Errorf("%d effects are left, want none", n)
	}
	if err := attempt(`SET autocommit = 1`, write); !errors.Is(err, dedup.ErrTxEnded) || !errors.Is(err, own) {
		t.Errorf("with autocommit: InTx = %v, want ErrTxEnded", err)
	}
	if v := handle(t, s, "k"); v != dedup.First {
		t.Errorf("claimed again: %v, want first", v)
	}
}

// A temporary table or trigger of one handler must not be visible to the next handler.
func TestATemporaryTableOfAHandlerIsNotTheNextOnes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		leaves := map[string][]string{
			"sqlite": {
				`CREATE TEMP TABLE effects (name text)`,
				`CREATE TEMP TRIGGER mine BEFORE INSERT ON main.effects BEGIN SELECT RAISE(IGNORE); END`,
			},
			"postgres": {`CREATE TEMP TABLE effects (name text)`},
		}[db.dialect]
		for i, q := range leaves {
			s := alone(db)
			handle(t, s, q, q)
			handle(t, s, "next to "+q, `INSERT INTO effects (name) VALUES ('x')`)
			if n := db.count(t, `SELECT count(*) FROM effects`); n != i+1 {
				t.Errorf("after %s: %d effects, want %d", q, n, i+1)
			}
		}
	})
}

// If a timeout of the session ends the wait for a key, the error is ErrInFlight and not the database's fault.
func TestPostgresSessionLimitsEndAWaitForAKey(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		if db.dialect != "postgres" {
			return
		}
		limits := []string{"statement_timeout"}
		if db.count(t, `SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'`) > 0 {
			limits = append(limits, "transaction_timeout")
		}
		for _, limit := range limits {
			for _, keys := range []int{1, 2} {
				t.Run(fmt.Sprint(limit, " ", keys), func(t *testing.T) {
					holder, s := db.open(deduptest.Options{}), alone(db)
					warm(t, s)
					exec(t, s.db, `SET `+limit+` = '500ms'`)
					recs := []dedup.Record{record(t.Name()), record(t.Name() + "2")}[:keys]
					err := holder.InTx(t.Context(), recs[:1], func(*sql.Tx, []dedup.Claim) error {
						err := s.InTx(t.Context(), recs, func(*sql.Tx, []dedup.Claim) error { return nil })
						if !errors.Is(err, dedup.ErrInFlight) || s.Retryable(err) {
							t.Errorf("InTx = %v, retryable %v; want ErrInFlight", err, s.Retryable(err))
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}
