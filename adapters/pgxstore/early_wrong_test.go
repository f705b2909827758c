package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// warm handles some messages, so that the next ones are claimed late.
func warm(t *testing.T, c *consumer.Consumer[pgx.Tx]) {
	t.Helper()
	for i := range 4 {
		if err := c.Process(t.Context(), fresh(fmt.Sprint("warm-", i))); err != nil {
			t.Fatal(err)
		}
	}
}

// A handler that uses its transaction itself, in any way, runs after the claim, and a duplicate has no effect.
func TestClaimLateWithAHandlerThatUsesItsTransaction(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx, id string) error{
		"Exec": func(ctx context.Context, tx pgx.Tx, id string) error { return second(tx.Exec(ctx, insertEffect, id)) },
		"Exec, and the error is swallowed": func(ctx context.Context, tx pgx.Tx, id string) error {
			_, _ = tx.Exec(ctx, insertEffect, id)
			return nil
		},
		"Conn": func(ctx context.Context, tx pgx.Tx, id string) error {
			_, _ = tx.Conn().Exec(ctx, insertEffect, id)
			return nil
		},
		"BEGIN on Conn": func(ctx context.Context, tx pgx.Tx, id string) error {
			_ = pgx.BeginFunc(ctx, tx.Conn(), func(tx pgx.Tx) error { return second(tx.Exec(ctx, insertEffect, id)) })
			return nil
		},
		"LargeObjects": func(ctx context.Context, tx pgx.Tx, id string) error {
			objects := tx.LargeObjects()
			if _, err := objects.Create(ctx, 0); err != nil {
				return err
			}
			return second(tx.Exec(ctx, insertEffect, id))
		},
		"a savepoint": func(ctx context.Context, tx pgx.Tx, id string) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return second(tx.Exec(ctx, insertEffect, id)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres18, 2)
			direct := false
			c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{
				Name: "billing", ClaimLate: true, MaxAttempts: 3, Backoff: func(int) time.Duration { return 0 },
				HandleBatch: func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
					if direct {
						return do(ctx, tx, msgs[0].ID)
					}
					return pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
						b.Queue(insertEffect, m.ID)
						return nil
					})(ctx, tx, msgs)
				},
			})
			warm(t, c)
			direct = true
			for range 3 {
				_ = c.Process(t.Context(), fresh("twice")) // what ends the transaction, such as BEGIN on Conn, is an error
			}
			if n := len(db.strings(t, `SELECT name FROM effects WHERE name = 'twice'`)); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
		})
	}
}

// A trigger that suppresses the claim suppresses the effects too.
func TestClaimLateWithoutARow(t *testing.T) {
	db := newOutboxDBAt(t, testdb.Schema(t, testdb.Postgres18(t)), 2)
	c := db.late(t, db.store, consumer.Config[pgx.Tx]{}, nil)
	warm(t, c)
	db.exec(t, `CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
	db.exec(t, `CREATE TRIGGER suppress BEFORE INSERT ON processed_messages FOR EACH ROW EXECUTE FUNCTION suppress()`)
	if err := c.ProcessBatch(t.Context(), []*consumer.Message{fresh("lost")})[0]; err == nil {
		t.Error("a message without a claim is acknowledged")
	}
	if n := len(db.strings(t, `SELECT name FROM effects WHERE name = 'lost'`)); n != 0 {
		t.Errorf("%d effects of a message without a claim", n)
	}
}

// A message whose key another transaction holds waits as without ClaimLate: not at the cost of HandlerTimeout, and for all
// held messages of a call together at most ClaimTimeout.
func TestClaimLateWaitsForHeldKeys(t *testing.T) {
	t.Parallel()
	db := newOutboxDB(t, testdb.Postgres18, 4)
	store := newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: 2 * time.Second})
	c := db.late(t, store, consumer.Config[pgx.Tx]{
		HandlerTimeout: 200 * time.Millisecond, MaxAttempts: 1, MaxPerTransaction: 1,
	}, nil)
	warm(t, c)
	tx, err := testPool(t, db.dsn, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var msgs []*consumer.Message
	for i := range 4 {
		m := fresh(fmt.Sprint("held-", i))
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: m.ID}, Time: time.Now()}
		if _, err := db.store.Claim(t.Context(), tx, []dedup.Record{rec}); err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	began := time.Now()
	for i, err := range c.ProcessBatch(t.Context(), msgs) {
		if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held || !errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("message %d: %v, want ErrInFlight, held", i, err)
		}
	}
	if took := time.Since(began); took > 3*2*time.Second { // with a wait for each it is 8 s
		t.Errorf("4 held messages took %v with a ClaimTimeout of 2 s", took)
	}
}

// A Store that cannot claim late is refused, instead of claiming first without a word.
func TestClaimLateIsRefused(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 1)
	modes := newStore(t, pgxstore.Config{Pool: testPool(t, db.dsn+"&default_query_exec_mode=exec", 1)})
	for name, store := range map[string]dedup.Store[pgx.Tx]{
		"exec": modes, "a wrapper of the interface": struct{ dedup.Store[pgx.Tx] }{db.store},
	} {
		if _, err := consumer.New(consumer.Config[pgx.Tx]{
			Name: "billing", Key: consumer.MessageID, Store: store, ClaimLate: true, TrustHandlers: true,
			RejectGivenUp: name != "exec",
			HandleBatch:   func(context.Context, pgx.Tx, []*consumer.Message) error { return nil },
		}); err == nil {
			t.Errorf("%s: ClaimLate is accepted", name)
		}
	}
}

// The claim's short wait ends with the claim: the handler's statements wait as the session says.
func TestClaimLateLeavesTheLockTimeout(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 2)
	queued := `INSERT INTO effects SELECT 'warm'`
	c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{
		Name: "billing", ClaimLate: true,
		HandleBatch: pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, _ *consumer.Message) error {
			b.Queue(queued)
			return nil
		}),
	})
	warm(t, c)
	queued = `INSERT INTO effects SELECT current_setting('lock_timeout')`
	if err := c.Process(t.Context(), fresh("order-1")); err != nil {
		t.Fatal(err)
	}
	want := db.strings(t, `SELECT current_setting('lock_timeout')`)[0]
	if got := db.strings(t, `SELECT name FROM effects WHERE name <> 'warm'`); len(got) != 1 || got[0] != want {
		t.Errorf("lock_timeout of a handler's statement is %q, want %q", got, want)
	}
}
