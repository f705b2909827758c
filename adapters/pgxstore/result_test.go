package pgxstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// Whatever surrounds SaveResult, the result is committed if and only if the transaction is, and savepoints undo it.
func TestSaveResultWithCommit(t *testing.T) {
	key := ordinaryRecord("k")[0].Key
	undo := errors.New("undo")
	for name, tt := range map[string]struct {
		spoil string
		fn    func(db *outboxDB, tx pgx.Tx, save func(tx pgx.Tx, result string) error) error
		want  string // the result; empty: none
		err   string // part of the error of InTx
		retry bool
	}{
		"alone": {
			fn:   func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error { return save(tx, "r") },
			want: "r",
		},
		"twice": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			return errors.Join(save(tx, "q"), save(tx, "r"))
		}, want: "r"},
		"and a message": {fn: func(db *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			return errors.Join(save(tx, "r"), db.store.Enqueue(t.Context(), tx, outbox.Message{ID: "m", Topic: "t"}))
		}, want: "r"},
		"rolled back": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			return errors.Join(save(tx, "r"), undo)
		}, err: "undo"},
		"the handler reads it": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			var got []byte
			err := errors.Join(save(tx, "r"), tx.QueryRow(t.Context(),
				`SELECT result FROM processed_messages`).Scan(&got))
			if string(got) != "r" {
				t.Errorf("the handler reads %q", got)
			}
			return err
		}, want: "r"},
		"in a savepoint": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return save(tx, "r") })
		}, want: "r"},
		"in a savepoint that is undone": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			_ = pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return errors.Join(save(tx, "r"), undo) })
			return nil
		}},
		"before a savepoint that is undone": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			err := save(tx, "r")
			_ = pgx.BeginFunc(t.Context(), tx, func(pgx.Tx) error { return undo })
			return err
		}, want: "r"},
		"after a failed statement, in a savepoint": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			_ = pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT 1/0`)
				return errors.Join(err, save(tx, "r"))
			})
			return nil
		}},
		"the claim is forgotten": {fn: func(db *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			return errors.Join(db.store.Forget(t.Context(), tx, key), save(tx, "r"))
		}, err: "is not claimed"},
		"with large objects": {fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
			los := tx.LargeObjects()
			_, err := los.Create(t.Context(), 0)
			return errors.Join(err, save(tx, "r"))
		}, want: "r"},
		"the server refuses it": {
			spoil: `ALTER TABLE processed_messages ADD CHECK (result IS NULL)`,
			fn:    func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error { return save(tx, "r") },
			err:   "save result",
		},
		"the server has no more room": {
			spoil: `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
				CREATE TRIGGER r BEFORE UPDATE ON processed_messages FOR EACH ROW EXECUTE FUNCTION refuse()`,
			fn:  func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error { return save(tx, "r") },
			err: "save result", retry: true,
		},
		"the server refuses it within a savepoint": {
			spoil: `ALTER TABLE processed_messages ADD CHECK (result IS NULL)`,
			fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
				err := pgx.BeginFunc(t.Context(), tx,
					func(tx pgx.Tx) error { return errors.Join(save(tx, "r"), effect(t.Context(), tx, "undone")) })
				if err == nil {
					t.Error("the statement after SaveResult succeeds")
				}
				return nil
			},
		},
		"a deferred constraint": {
			spoil: `ALTER TABLE effects ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`,
			fn: func(_ *outboxDB, tx pgx.Tx, save func(pgx.Tx, string) error) error {
				return errors.Join(effect(t.Context(), tx, "twice"), effect(t.Context(), tx, "twice"), save(tx, "r"))
			}, err: "23505",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres, 2)
			if tt.spoil != "" {
				if _, err := db.pool.Exec(t.Context(), tt.spoil, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			err := db.store.InTx(t.Context(), ordinaryRecord("k"), func(tx pgx.Tx, _ []dedup.Claim) error {
				return errors.Join(effect(t.Context(), tx, "e"), tt.fn(db, tx, func(tx pgx.Tx, result string) error {
					given := []byte(result)
					err := db.store.SaveResult(t.Context(), tx, key, given)
					clear(given) // it belongs to the caller
					return err
				}))
			})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) ||
				db.store.Retryable(err) != tt.retry {
				t.Errorf("InTx = %v (retryable %v), want %q", err, db.store.Retryable(err), tt.err)
			}
			c, found, lookErr := db.store.Lookup(t.Context(), key)
			if lookErr != nil || found != (tt.err == "") || string(c.Result) != tt.want {
				t.Errorf("%v, result %q, %v; want %q", found, c.Result, lookErr, tt.want)
			}
			if got := db.strings(t, `SELECT name FROM effects`); slices.Contains(got, "e") != (tt.err == "") {
				t.Errorf("effects %v", got)
			}
		})
	}
}

var _ driver.ResultStore[pgx.Tx] = (*pgxstore.Store)(nil)
