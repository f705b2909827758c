package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// checkCommitReported runs a handler that may have committed, and checks that InTx returned ErrTxEnded if and only if
// it did.
func checkCommitReported(t *testing.T, s *node, ctx context.Context, committed bool,
	do func(ctx context.Context, tx *sql.Tx) error,
) {
	t.Helper()
	for _, n := range []int{1, 10} {
		recs := make([]dedup.Record, n)
		for i := range recs {
			recs[i] = record(fmt.Sprint(t.Name(), n, i))
		}
		err := s.InTx(ctx, recs, func(tx *sql.Tx, _ []dedup.Claim) error { return do(ctx, tx) })
		if err == nil || errors.Is(err, dedup.ErrTxEnded) != committed {
			t.Errorf("%d claims, committed %v: InTx = %v", n, committed, err)
		}
		for _, r := range recs {
			if _, claimed, err := s.Lookup(context.WithoutCancel(ctx), r.Key); err != nil || claimed != committed {
				t.Errorf("%d claims, committed %v: Lookup says %v, %v", n, committed, claimed, err)
			}
		}
	}
}

// A handler ends its transaction, and then its connection is cut. If the claim is committed, the next delivery would be
// taken for a duplicate, so InTx must report it.
func TestTheClaimIsLookedForWhereTheConnectionIsCut(t *testing.T) {
	slow := map[string]string{
		"sqlite":   `WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r`,
		"postgres": `SELECT pg_sleep(20)`,
		"mysql":    `SELECT SLEEP(20)`,
	}
	kill := map[string]string{"postgres": `SELECT pg_terminate_backend(%d)`, "mysql": `KILL %d`}
	commits := func(_ context.Context, tx *sql.Tx) error { _, err := tx.Exec(`COMMIT`); return err }
	nothing := func(context.Context, *sql.Tx) error { return nil }
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		s.db.SetMaxOpenConns(1) // the Store must free the handler's connection before it asks on another one
		warm(t, s)
		ends := map[string]func(context.Context, *sql.Tx) error{"nothing": nothing, "COMMIT": commits}
		if db.dialect == "mysql" {
			ends["DDL"] = func(_ context.Context, tx *sql.Tx) error {
				_, err := tx.Exec(`CREATE TABLE IF NOT EXISTS other (a int)`)
				return err
			}
		}
		cuts := map[string]func(ctx context.Context, tx *sql.Tx) error{
			"by the end of its context": func(ctx context.Context, tx *sql.Tx) error {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, err := tx.ExecContext(short, slow[db.dialect])
				return err
			},
		}
		if kill[db.dialect] != "" {
			cuts["by the server"] = func(ctx context.Context, tx *sql.Tx) error {
				var id int
				if err := tx.QueryRowContext(ctx, serverID[db.dialect]).Scan(&id); err != nil {
					t.Fatal(err)
				}
				_, _ = db.ExecContext(ctx, fmt.Sprintf(kill[db.dialect], id))
				_, err := tx.ExecContext(ctx, slow[db.dialect])
				return err
			}
		}
		for name, end := range ends {
			for how, cut := range cuts {
				for _, swallows := range []bool{false, true} {
					if db.dialect == "sqlite" && name == "nothing" && swallows {
						continue // the connection was not cut, and the transaction is still open
					}
					t.Run(fmt.Sprintf("%s, cut %s, swallowed %v", name, how, swallows), func(t *testing.T) {
						checkCommitReported(t, s, t.Context(), name != "nothing", func(ctx context.Context, tx *sql.Tx) error {
							if err := end(ctx, tx); err != nil {
								t.Fatal(err)
							}
							err := cut(ctx, tx)
							if err == nil {
								t.Error("no connection was cut")
							}
							if swallows {
								return nil
							}
							return err
						})
					})
				}
			}
		}
	})
}

// A handler's own COMMIT is detected even if the context has ended.
func TestTheEndOfTheContextHidesNoCommit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		warm(t, s)
		for name, end := range map[string]func(*sql.Tx) error{
			"nothing":   func(*sql.Tx) error { return nil },
			"tx.Commit": func(tx *sql.Tx) error { return tx.Commit() },
			"COMMIT":    func(tx *sql.Tx) error { _, err := tx.Exec(`COMMIT`); return err },
			"and begins": func(tx *sql.Tx) error {
				_, err := tx.Exec(`COMMIT`)
				_, _ = tx.Exec(`BEGIN`)
				_, _ = tx.Exec(`SELECT wrong`)
				return err
			},
		} {
			for _, returns := range []error{nil, errUndo} {
				t.Run(fmt.Sprint(name, ", returns ", returns), func(t *testing.T) {
					for range 2 { // in the second round the keys are duplicates, and nothing is inserted
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						err := s.InTx(ctx, []dedup.Record{record(t.Name())}, func(tx *sql.Tx, a []dedup.Claim) error {
							if a[0].Verdict != dedup.First {
								return errUndo
							}
							if err := end(tx); err != nil {
								t.Fatal(err)
							}
							cancel()
							return returns
						})
						_, claimed, lookup := s.Lookup(t.Context(), record(t.Name()).Key)
						if lookup != nil || claimed != (name != "nothing") {
							t.Fatalf("Lookup says %v, %v", claimed, lookup)
						}
						if err == nil || errors.Is(err, dedup.ErrTxEnded) != claimed {
							t.Errorf("InTx = %v; claimed %v", err, claimed)
						}
						if claimed {
							break
						}
					}
				})
			}
		}
	})
}
