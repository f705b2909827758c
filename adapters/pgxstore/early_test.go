package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// late is a consumer with Pipeline and ClaimLate, whose function writes one effect.
func (db *outboxDB) late(t *testing.T, store *pgxstore.Store, cfg consumer.Config[pgx.Tx],
	more queueFunc,
) *consumer.Consumer[pgx.Tx] {
	cfg.Name, cfg.ClaimLate, cfg.Logger = "billing", true, slog.New(slog.DiscardHandler)
	cfg.HandleBatch = func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		return pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, m *consumer.Message) error {
			b.Queue(insertEffect, m.ID)
			if m.Topic != "" {
				if err := store.Enqueue(ctx, tx, outbox.Message{Topic: m.Topic}); err != nil {
					return err
				}
			}
			if more == nil {
				return nil
			}
			return more(ctx, b, m)
		})(ctx, tx, msgs)
	}
	return newConsumer(t, store, cfg)
}

func fresh(id string) *consumer.Message {
	return &consumer.Message{ID: id, Payload: []byte("x"), Time: time.Now(), Attempt: 1}
}

// The claim, the statements, the outbox messages and COMMIT take one round trip.
func TestClaimLateTakesOneRoundTrip(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 2)
	store, trips := db.traced(t)
	c := db.late(t, store, consumer.Config[pgx.Tx]{}, nil)
	for i := range 4 { // the first ones register, learn the session and the shards, and prepare
		trips.take()
		m := fresh(fmt.Sprint("order-", i))
		m.Topic = "charged"
		if err := c.Process(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if sent := trips.take(); len(sent) != 1 {
		t.Errorf("%d round trips, want one: %q", len(sent), sent)
	}
	if n := len(db.ids(t)); n != 4 {
		t.Errorf("%d outbox messages, want 4", n)
	}
}

// What InTx guesses decides nothing: each case answers as without ClaimLate, and has each effect once.
func TestClaimLateGuessesWrong(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres18, 6)
	c := db.late(t, db.store, consumer.Config[pgx.Tx]{MaxAttempts: 1, ParkLimit: consumer.ParkLimit{Unlimited: true}}, func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
		switch string(m.Payload) {
		case "divides by zero":
			b.Queue(`SELECT 1/0`)
		case "breaks a constraint":
			b.Queue(`INSERT INTO txonce_shards SELECT * FROM txonce_shards`)
		case "cannot be encoded":
			b.Queue(`SELECT $1::int`, "x")
		case "is an error":
			return errors.New("no")
		}
		return nil
	})
	for i := range 8 { // all connections know their sessions
		if err := c.Process(t.Context(), fresh(fmt.Sprint("warm-", i))); err != nil {
			t.Fatal(err)
		}
	}
	effects := func(id string) int { return len(db.strings(t, `SELECT name FROM effects WHERE name = $1`, id)) }
	parked := func(id string) observedCause {
		letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			if l.Record.Key.ID == id {
				return observedCause(l.Cause)
			}
		}
		return ""
	}
	t.Run("duplicates", func(t *testing.T) {
		for range 3 {
			if err := c.Process(t.Context(), fresh("twice")); err != nil {
				t.Fatal(err)
			}
		}
		if n := effects("twice"); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
	t.Run("other content", func(t *testing.T) {
		other := fresh("twice")
		other.Payload = []byte("y")
		if err := c.Process(t.Context(), other); err != nil || parked("twice") != "mismatch" || effects("twice") != 1 {
			t.Errorf("%v, parked for %q, %d effects", err, parked("twice"), effects("twice"))
		}
	})
	for _, fault := range []string{"divides by zero", "breaks a constraint", "cannot be encoded", "is an error"} {
		t.Run(fault, func(t *testing.T) {
			m := fresh(fault)
			m.Payload = []byte(fault)
			if err := c.Process(t.Context(), m); err != nil || parked(fault) != "exhausted" || effects(fault) != 0 {
				t.Errorf("%v, parked for %q, %d effects", err, parked(fault), effects(fault))
			}
		})
	}
	t.Run("another transaction holds the key", func(t *testing.T) {
		err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "held"}, Time: time.Now()}
			if _, err := db.store.Claim(t.Context(), tx, []dedup.Record{rec}); err != nil {
				return err
			}
			soon := db.late(t, newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: time.Second}),
				consumer.Config[pgx.Tx]{}, nil)
			err := soon.ProcessBatch(t.Context(), []*consumer.Message{fresh("held")})[0] // Process would wait
			if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held ||
				!errors.Is(err, dedup.ErrInFlight) {
				t.Errorf("Process = %v, want ErrInFlight, held", err)
			}
			return errors.New("roll back")
		})
		if err == nil || effects("held") != 0 {
			t.Errorf("%v, %d effects", err, effects("held"))
		}
		if err := c.Process(t.Context(), fresh("held")); err != nil || effects("held") != 1 {
			t.Errorf("after that: %v, %d effects", err, effects("held"))
		}
	})
	t.Run("a session whose commits may be lost", func(t *testing.T) {
		conns := db.pool.AcquireAllIdle(t.Context())
		for _, conn := range conns {
			if _, err := conn.Exec(t.Context(), `SET synchronous_commit = off`); err != nil {
				t.Fatal(err)
			}
		}
		for _, conn := range conns {
			conn.Release()
		}
		if err := c.Process(t.Context(), fresh("durable")); err != nil || effects("durable") != 1 {
			t.Errorf("%v, %d effects", err, effects("durable"))
		}
		if on := db.strings(t, `SELECT current_setting('synchronous_commit')`); on[0] != "on" {
			t.Errorf("a connection with synchronous_commit %s is in use", on[0])
		}
	})
}

type observedCause string

// Many workers get each message several times at once. Each has its effect once.
func TestClaimLateBesideOthers(t *testing.T) {
	oneEffectEach(t, newOutboxDB(t, testdb.Postgres18, 8))
}

func oneEffectEach(t *testing.T, db *outboxDB) {
	t.Helper()
	c := db.late(t, db.store, consumer.Config[pgx.Tx]{}, nil)
	const messages, copies = 100, 4
	var wg sync.WaitGroup
	for range copies {
		wg.Go(func() {
			for i := range messages {
				for tries := 0; ; tries++ {
					err := c.Process(t.Context(), fresh(fmt.Sprint("order-", i)))
					if err == nil {
						break
					}
					if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held || tries == 50 {
						t.Errorf("order-%d: %v", i, err)
						break
					}
				}
			}
		})
	}
	wg.Wait()
	all, distinct := db.strings(t, `SELECT name FROM effects`), db.strings(t, `SELECT DISTINCT name FROM effects`)
	if len(all) != messages || len(distinct) != messages {
		t.Errorf("%d effects of %d messages, want %d", len(all), len(distinct), messages)
	}
}
