package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// misusesOf returns the misuses on the database of db.
func misusesOf(t *testing.T, db fixture) []deduptest.Misuse[*sql.Tx] {
	switch db.dialect {
	case "sqlite":
		return sqliteMisuses()
	case "postgres":
		return postgresMisuses()
	}
	return mysqlMisuses(&mysqlDB{db: db.DB})
}

// A handler that called Rollback has committed nothing, and the error of InTx says so. After Commit it does not.
func TestRollbackByTheHandlerIsKnown(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		for _, fails := range []error{nil, errUndo} {
			for name, end := range map[string]func(*sql.Tx) error{
				"rollback": (*sql.Tx).Rollback,
				"commit":   (*sql.Tx).Commit,
			} {
				s := db.open(deduptest.Options{})
				err := s.InTx(t.Context(), []dedup.Record{record(fmt.Sprint(name, fails))}, func(tx *sql.Tx, _ []dedup.Claim) error {
					_ = end(tx)
					return fails
				})
				if !errors.Is(err, dedup.ErrTxEnded) || errors.Is(err, dedup.ErrRolledBack) != (name == "rollback") {
					t.Errorf("%s, then %v: InTx = %v", name, fails, err)
				}
			}
		}
	})
}

// A handler that commits and then returns an error has left its claim behind. With its error alone, the message would
// be delivered again and taken for a duplicate.
func TestAHandlerThatCommitsAndFailsIsReported(t *testing.T) {
	broken := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO no_such_table_of_txonce VALUES (1)`)
		return err
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		committed := 0
		for _, m := range misusesOf(t, db) {
			for how, fail := range map[string]func(ctx context.Context, tx *sql.Tx) error{
				"an error of its own": func(context.Context, *sql.Tx) error { return errUndo },
				"a cancelled call": func(context.Context,
					*sql.Tx,
				) error {
					return fmt.Errorf("call: %w", context.Canceled)
				},
				"a failed statement": broken,
				"an effect, and a failed statement": func(ctx context.Context, tx *sql.Tx) error {
					_, _ = tx.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('late')`)
					return broken(ctx, tx)
				},
			} {
				t.Run(m.Name+" and returns "+how, func(t *testing.T) {
					ctx, s, r := t.Context(), db.open(deduptest.Options{}), record(m.Name+how)
					err := s.InTx(ctx, []dedup.Record{r}, func(tx *sql.Tx, _ []dedup.Claim) error {
						_ = m.Do(ctx, tx)
						return fail(ctx, tx)
					})
					if err == nil {
						t.Fatal("InTx returned nil")
					}
					_, claimed, lookup := s.Lookup(ctx, r.Key)
					if lookup != nil {
						t.Fatal(lookup)
					}
					if claimed {
						committed++
					}
					if claimed && !errors.Is(err, dedup.ErrTxEnded) {
						t.Errorf("the claim is committed, and InTx returned %v, want ErrTxEnded", err)
					}
				})
			}
		}
		if committed == 0 {
			t.Error("no handler committed, so this test checked nothing")
		}
	})
}

// VerifyTx between two handlers of one transaction detects that the first one ended it, before the second one runs.
func TestVerifyTxTellsWhatAHandlerDid(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		for _, m := range misusesOf(t, db) {
			t.Run(m.Name, func(t *testing.T) {
				// a new database each time, because SQLite's PRAGMA max_page_count would stay
				ctx, s := t.Context(), db.open(deduptest.Options{})
				recs := []dedup.Record{record(m.Name + "0"), record(m.Name + "1")}
				var before, verified error
				err := s.InTx(ctx, recs, func(tx *sql.Tx, _ []dedup.Claim) error {
					for range 3 { // VerifyTx may be called repeatedly
						before = errors.Join(before, s.VerifyTx(ctx, tx))
					}
					_ = m.Do(ctx, tx)
					verified = s.VerifyTx(ctx, tx)
					if again := s.VerifyTx(ctx, tx); verified != nil && !errors.Is(again, verified) {
						t.Errorf("VerifyTx = %v, and then %v", verified, again)
					}
					return nil // although VerifyTx failed
				})
				if before != nil {
					t.Errorf("VerifyTx before it = %v", before)
				}
				if m.Ends && !errors.Is(verified, dedup.ErrTxEnded) {
					t.Errorf("VerifyTx = %v, want ErrTxEnded", verified)
				}
				if verified != nil && !errors.Is(err, verified) || verified == nil && err != nil {
					t.Errorf("InTx = %v, and VerifyTx was %v", err, verified)
				}
				_, claimed, lookup := s.Lookup(ctx, recs[1].Key)
				if lookup != nil {
					t.Fatal(lookup)
				}
				if claimed && err != nil && !errors.Is(err, dedup.ErrTxEnded) {
					t.Errorf("the claims are committed, and InTx returned %v", err)
				}
				if !claimed && err == nil {
					t.Error("InTx returned nil, and there is no claim")
				}
			})
		}
	})
}

// A handler of a batch cannot roll back to a savepoint that an earlier handler has left set: the effects of the
// handlers between them would be lost, and their claims would be committed.
func TestVerifyTxEndsSavepoints(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		for _, statement := range []string{`ROLLBACK TO SAVEPOINT work`, `RELEASE SAVEPOINT work`} {
			ctx, s := t.Context(), db.open(deduptest.Options{})
			err := s.InTx(ctx, []dedup.Record{record(statement + "0"), record(statement + "1")}, func(tx *sql.Tx, _ []dedup.Claim) error {
				for range 2 { // two handlers that leave a savepoint set
					_, err := tx.ExecContext(ctx, `SAVEPOINT work`)
					if err := errors.Join(err, s.VerifyTx(ctx, tx)); err != nil {
						t.Errorf("a handler that leaves a savepoint set: %v", err)
					}
				}
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
			if err == nil || errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("%s: InTx = %v, want the handler's error", statement, err)
			}
		}
	})
}

// If a handler ignored a failed statement, or left rows open, its transaction has not ended, and the database is not at
// fault.
func TestVerifyTxBlamesTheHandler(t *testing.T) {
	open := func(query string) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, query) //nolint:sqlclosecheck // left open on purpose
			if err == nil {
				rows.Next()
				err = rows.Err()
			}
			return err
		}
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		handlers := map[string]func(ctx context.Context, tx *sql.Tx) error{}
		switch db.dialect {
		case "sqlite":
			handlers["rows of a write left open"] = open(`INSERT INTO effects (name) VALUES ('x'), ('y') RETURNING name`)
		case "postgres":
			handlers["swallowed"] = func(ctx context.Context, tx *sql.Tx) error {
				_, _ = tx.ExecContext(ctx, `SELECT 1/0`)
				return nil
			}
			handlers["few rows left open"] = open(`SELECT generate_series(1, 3)`)
			handlers["many rows left open"] = open(`SELECT generate_series(1, 1000000)`)
		case "mysql":
			handlers["few rows left open"] = open(`SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3`)
			handlers["many rows left open"] = open(`SELECT 1 FROM information_schema.columns AS a CROSS JOIN information_schema.columns AS b LIMIT 1000000`)
		}
		for name, do := range handlers {
			for _, verify := range []bool{true, false} {
				for _, fails := range []bool{true, false} {
					if fails && name == "swallowed" {
						continue
					}
					t.Run(fmt.Sprintf("%s, verified %v, next statement returned %v", name, verify, fails), func(t *testing.T) {
						ctx, r := t.Context(), record(t.Name())
						err := s.InTx(ctx, []dedup.Record{r}, func(tx *sql.Tx, _ []dedup.Claim) error {
							if err := do(ctx, tx); err != nil {
								t.Fatal(err)
							}
							if fails {
								_, err := tx.ExecContext(ctx, `SAVEPOINT mine`)
								if err == nil && db.dialect != "sqlite" {
									t.Error("the next statement succeeded")
								}
								if err != nil {
									return err
								}
							}
							if verify {
								err := s.VerifyTx(ctx, tx)
								if err == nil {
									t.Error("VerifyTx = nil")
								}
								return err
							}
							return nil
						})
						if err == nil || errors.Is(err, dedup.ErrTxEnded) || s.Retryable(err) || s.Ambiguous(err) {
							t.Errorf("InTx = %v (retryable %v, ambiguous %v), want an error of the handler's", err,
								s.Retryable(err), s.Ambiguous(err))
						}
						if c := claim(t, s, r); c[0].Verdict != dedup.First {
							t.Errorf("claimed again: %v, want first", c[0].Verdict)
						}
					})
				}
			}
		}
	})
}

func TestVerifyTxOfAnotherTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error { return s.VerifyTx(t.Context(), tx) })
		if err == nil || errors.Is(err, dedup.ErrTxEnded) {
			t.Errorf("VerifyTx of a transaction of the caller's = %v", err)
		}
	})
}

// Register detects tables that were dropped or that the user may not read. The schema version alone does not show that.
func TestRegisterMissesADroppedTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		exec(t, db.DB, `DROP TABLE dead_letters`)
		err := db.open(deduptest.Options{}).Register(t.Context(), "billing", 0)
		if !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), "dead_letters") {
			t.Errorf("Register = %v; want ErrSchema that names dead_letters", err)
		}
	})
}

// After a handler's COMMIT, the next transaction can ask whether that transaction committed.
func TestAHandlersCommitCanBeAskedFor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		for _, commits := range []bool{true, false} {
			r := record(fmt.Sprint("doubt ", commits))
			err := s.InTx(t.Context(), []dedup.Record{r}, func(tx *sql.Tx, _ []dedup.Claim) error {
				if commits {
					return tx.Commit()
				}
				return tx.Rollback()
			})
			doubt, ok := errors.AsType[*dedup.InDoubtError](err)
			if ok != commits {
				t.Fatalf("commits %v: InTx = %v; InDoubtError wanted: %v", commits, err, commits)
			}
			if !commits {
				continue
			}
			err = s.InTx(t.Context(), []dedup.Record{r}, func(tx *sql.Tx, claims []dedup.Claim) error {
				committed, err := doubt.Committed(t.Context(), tx)
				if !committed || err != nil || claims[0].Verdict != dedup.Duplicate {
					t.Errorf("Committed = %v, %v; %v", committed, err, claims[0].Verdict)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
