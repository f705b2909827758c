package pgxstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// When the last round trip fails, InTx returns the error with its cause, everything is rolled back, and InTx never
// reports success.
func TestOutboxWriterFailsWithCommit(t *testing.T) {
	raise := func(code string) string {
		return fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END $$`, code)
	}
	for _, tt := range []struct {
		name      string
		spoil     []string
		code      string // the code that the error must contain
		retryable bool
		is        error
	}{
		{
			"a constraint on the outbox",
			[]string{`ALTER TABLE outbox_messages ADD CHECK (topic <> 'events')`},
			"23514",
			false, nil,
		},
		{"a trigger on the outbox refuses", []string{raise("P0001"), `CREATE TRIGGER r BEFORE INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION refuse()`}, "P0001", false, nil},
		{"a trigger on the outbox loses a race", []string{raise("40001"), `CREATE TRIGGER r BEFORE INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION refuse()`}, "40001", true, nil},
		{"a deferred trigger on the outbox", []string{raise("P0001"), `CREATE CONSTRAINT TRIGGER r AFTER INSERT ON outbox_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`}, "P0001", false, nil},
		{"a deferred constraint of the handler's", []string{`ALTER TABLE effects ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`, `INSERT INTO effects VALUES ('undone')`}, "23505", false, nil},
		{"a deferred trigger of the handler's loses a race", []string{raise("40P01"), `CREATE CONSTRAINT TRIGGER r AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`}, "40P01", true, nil},
		{"no table", []string{`DROP TABLE outbox_messages`}, "42P01", true, dedup.ErrSchema},
		{"no shards", []string{`DELETE FROM txonce_shards`}, "", true, dedup.ErrSchema},
		{
			"a shard in between is missing",
			[]string{`DELETE FROM txonce_shards WHERE shard = 7`},
			"", true,
			dedup.ErrSchema,
		},
		{"the backend is terminated", []string{`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$`, `CREATE TRIGGER r BEFORE INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION refuse()`}, "", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres, 2)
			for _, sql := range tt.spoil {
				db.exec(t, sql)
			}
			before := db.strings(t, `SELECT name FROM effects`)
			recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-1"}, Time: time.Now()}}
			for range 2 { // the second attempt uses prepared statements, and must find no trace of the first
				var verdict dedup.Verdict
				err := db.store.InTx(t.Context(), recs, func(tx pgx.Tx, claims []dedup.Claim) error {
					verdict = claims[0].Verdict
					session{t, db}.enqueue(tx, "a", "b")
					session{t, db}.exec(tx, `INSERT INTO effects VALUES ($1)`, "undone")
					return nil
				})
				switch {
				case err == nil || verdict != dedup.First:
					t.Fatalf("InTx = %v, %v", verdict, err)
				case !strings.Contains(err.Error(), tt.code), db.store.Retryable(err) != tt.retryable, tt.is != nil &&
					!errors.Is(err, tt.is):
					t.Errorf("InTx = %v (retryable %v), want %s, retryable %v, %v", err, db.store.Retryable(err),
						tt.code, tt.retryable, tt.is)
				}
			}
			if diff := cmp.Diff(before, db.strings(t, `SELECT name FROM effects`)); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(tt.name, "no table") {
				db.want(t)
			}
		})
	}
}

// The connection is cut around the COMMIT. When the transaction is repeated, exactly one message exists in the end.
func TestOutboxWriterCommitUnknown(t *testing.T) {
	for _, f := range []deduptest.Fault{deduptest.CommitLost, deduptest.AnswerLost, deduptest.CommitLate} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			want := dedup.Duplicate
			if f == deduptest.CommitLost {
				want = dedup.First
			}
			verdicts := commitUnknown(t, f)
			// When a connection is cut, pgx asks the server to cancel the running statement. If COMMIT is delayed, that
			// statement may be the INSERT of the messages. Then nothing was committed.
			for try := 0; f == deduptest.CommitLate && verdicts[len(verdicts)-1] != want && try < 20; try++ {
				verdicts = commitUnknown(t, f)
			}
			if last := verdicts[len(verdicts)-1]; last != want {
				t.Errorf("verdicts %v, want %v in the end", verdicts, want)
			}
		})
	}
}

// commitUnknown repeats the transaction until it succeeds, and returns the verdicts of all attempts.
func commitUnknown(t *testing.T, f deduptest.Fault) (verdicts []dedup.Verdict) {
	t.Helper()
	db := newOutboxDB(t, testdb.Postgres, 2)
	store := newStore(t, pgxstore.Config{
		Pool:         testPool(t, wireproxy.Postgres(t, db.dsn, f), 1),
		ClaimTimeout: time.Minute,
	})
	recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-1"}, Time: time.Now()}}
	attempt := func() error {
		return store.InTx(t.Context(), recs, func(tx pgx.Tx, claims []dedup.Claim) error {
			verdicts = append(verdicts, claims[0].Verdict)
			if claims[0].Verdict != dedup.First {
				return nil
			}
			return store.Enqueue(t.Context(), tx, message("a"), message("b"))
		})
	}
	err := attempt()
	if err == nil || !store.Retryable(err) || store.Result(err) != observe.CommitUnknown {
		t.Fatalf("InTx = %v (retryable %v, result %q), want a retryable error that leaves the outcome open", err,
			store.Retryable(err), store.Result(err))
	}
	for range 100 {
		if err = attempt(); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	db.want(t, "a", "b")
	return verdicts
}

// Sequence numbers follow the order of transactions that exclude each other, even if Enqueue comes before the lock.
func TestOutboxWriterNumbersLate(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 4)
		db.exec(t, `CREATE TABLE accounts (id int PRIMARY KEY)`)
		db.exec(t, `INSERT INTO accounts VALUES (1)`)
		for name, lock := range map[string]func(ctx context.Context, tx pgx.Tx) error{
			"a row lock": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, 1)
				return err
			},
			"LockOrderingKey": func(ctx context.Context,
				tx pgx.Tx,
			) error {
				return db.store.LockOrderingKey(ctx, tx, "account 1")
			},
		} {
			t.Run(name, func(t *testing.T) {
				db.exec(t, `TRUNCATE outbox_messages`)
				early, pid := make(chan error, 1), make(chan int, 1)
				err := db.inTx(t.Context(), func(tx pgx.Tx) error {
					if err := lock(t.Context(), tx); err != nil {
						return err
					}
					go func() {
						early <- db.inTx(t.Context(), func(tx pgx.Tx) error {
							if err := db.store.Enqueue(t.Context(), tx,
								message("enqueued first, committed second")); err != nil {
								return err
							}
							var mine int
							if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&mine); err != nil {
								return err
							}
							pid <- mine
							return lock(t.Context(), tx)
						})
					}()
					select {
					case mine := <-pid:
						db.awaitLockWait(t, mine)
					case err := <-early:
						t.Fatalf("the concurrent transaction: %v", err)
					}
					return db.store.Enqueue(t.Context(), tx, message("enqueued second, committed first"))
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := <-early; err != nil {
					t.Fatal(err)
				}
				db.want(t, "enqueued second, committed first", "enqueued first, committed second")
			})
		}
	})
}

// awaitLockWait returns when the backend waits for a lock.
func (db *outboxDB) awaitLockWait(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 2*time.Minute; <-tick.C {
		if len(db.strings(t, `SELECT '' WHERE cardinality(pg_blocking_pids($1)) > 0`, pid)) > 0 {
			return
		}
	}
	t.Fatal("the backend does not wait for a lock")
}

// LockOrderingKey locks one key until the end of the transaction, and its wait ends at the session's lock_timeout.
func TestOutboxSerialize(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 3)
	err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		if err := db.store.LockOrderingKey(t.Context(), tx, "a"); err != nil {
			return err
		}
		for key, want := range map[string]bool{"a": true, "b": false} {
			err := db.inTx(t.Context(), func(tx pgx.Tx) error {
				session{t, db}.exec(tx, `SET LOCAL lock_timeout = '50ms'`)
				return db.store.LockOrderingKey(t.Context(), tx, key)
			})
			if got := err != nil && db.store.Retryable(err); got != want {
				t.Errorf("LockOrderingKey(%q) beside one of %q: %v; want a retryable error: %v", key, "a", err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Sequence numbers follow the order of Enqueue, whether one statement or several write the rows. No session reserves
// numbers in advance.
func TestOutboxWriterOrderOfMany(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 2)
		if got := db.strings(t, `SELECT cache_size::text FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = 'outbox_seq'`); len(got) != 1 || got[0] != "1" {
			t.Errorf("outbox_seq has CACHE %v, want 1", got)
		}
		large := bytes.Repeat([]byte("x"), 5<<20) // two of them do not fit into one statement
		for _, tt := range []struct {
			name    string
			n       int
			payload []byte
		}{{"many", 5000, nil}, {"large", 4, large}} {
			t.Run(tt.name, func(t *testing.T) {
				want := make([]string, tt.n)
				msgs := make([]outbox.Message, tt.n)
				for i := range msgs {
					want[i] = fmt.Sprintf("m-%04d", (i*7919)%tt.n)
					msgs[i] = outbox.Message{
						ID: want[i], Topic: "events", OrderingKey: fmt.Sprint(i % 10),
						Payload: tt.payload,
					}
				}
				for name, tx := range map[string]func(fn func(tx pgx.Tx) error) error{
					"InTx": func(fn func(tx pgx.Tx) error) error { return db.inTx(t.Context(), fn) },
					"the caller's": func(fn func(tx pgx.Tx) error) error {
						return pgx.BeginFunc(t.Context(),
							db.pool, fn)
					},
				} {
					t.Run(name, func(t *testing.T) {
						db.exec(t, `TRUNCATE outbox_messages`)
						if err := tx(func(tx pgx.Tx) error { return db.store.Enqueue(t.Context(), tx, msgs...) }); err != nil {
							t.Fatal(err)
						}
						db.want(t, want...)
						if got := db.strings(t, `SELECT DISTINCT length(payload)::text FROM outbox_messages`); len(got) != 1 || got[0] != fmt.Sprint(len(tt.payload)) {
							t.Errorf("lengths of payloads: %v, want %d", got, len(tt.payload))
						}
					})
				}
			})
		}
	})
}

// The caller may reuse its slices after Enqueue has returned.
func TestOutboxWriterKeepsNothingOfTheCaller(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 1)
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		m := outbox.Message{
			ID: "a", Topic: "events", Payload: []byte("before"),
			Headers: map[string]string{"h": "before"},
		}
		if err := db.store.Enqueue(t.Context(), tx, m); err != nil {
			return err
		}
		copy(m.Payload, "after!")
		m.Headers["h"] = "after!"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := db.strings(t, `SELECT convert_from(payload, 'UTF8') || ' ' || headers::text FROM outbox_messages`); len(got) != 1 || got[0] != `before {"h":"before"}` {
		t.Errorf("written: %v", got)
	}
}

// A Store can enqueue in a transaction of another Store.
func TestOutboxWriterOfAnotherStore(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	other := newStore(t, pgxstore.Config{Pool: db.pool})
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
		session{t, db}.enqueue(tx, "a")
		if err := other.Enqueue(t.Context(), tx, message("b")); err != nil {
			return err
		}
		session{t, db}.enqueue(tx, "c")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	db.want(t, "a", "b", "c")
}
