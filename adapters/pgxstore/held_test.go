package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// transactions counts a store's transactions that claim.
type transactions struct {
	*pgxstore.Store
	n atomic.Int64
}

func (s *transactions) InTx(ctx context.Context, recs []dedup.Record, fn func(pgx.Tx, []dedup.Claim) error) error {
	s.n.Add(1)
	return s.Store.InTx(ctx, recs, fn)
}

// When other processes hold some keys of a batch, the batch waits once, for ClaimTimeout. Then it commits the other
// messages in one transaction. On redelivery it waits for a shorter time.
func TestABatchWaitsOnceForKeysInFlight(t *testing.T) {
	for _, held := range []int{1, 8} {
		t.Run(fmt.Sprint(held, " of 500"), func(t *testing.T) {
			const n = 500
			dsn := testdb.Reused(t, testdb.Postgres18(t), suiteTables)
			db := newDBAt(t, place{dsn: dsn})
			pool := testPool(t, dsn, 8)
			store := &transactions{Store: newStore(t, pgxstore.Config{Pool: pool, ClaimTimeout: time.Second})}
			name := "held"
			var backoffs []int
			c, err := consumer.New(consumer.Config[pgx.Tx]{
				Name: name, Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
				Handle: func(ctx context.Context, tx pgx.Tx,
					m *consumer.Message,
				) error {
					return db.Effect(ctx, tx, m.ID)
				},
				Backoff: func(n int) time.Duration { backoffs = append(backoffs, n); return time.Duration(n) },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			batch, isHeld := make([]*consumer.Message, n), map[int]bool{}
			for i := range batch {
				batch[i] = &consumer.Message{ID: fmt.Sprint(i), Payload: []byte("x"), Time: time.Now(), Attempt: 1}
			}
			var recs []dedup.Record
			for k := range held {
				i := k*(n/held) + 11
				isHeld[i] = true
				recs = append(recs, dedup.Record{Key: dedup.Key{Consumer: name, ID: fmt.Sprint(i)}, Time: time.Now()})
			}
			release, done := make(chan struct{}), make(chan error, 1)
			holding := make(chan struct{})
			holder := db.Open(t, deduptest.Options{})
			go func() {
				done <- holder.InTx(t.Context(), recs, func(pgx.Tx, []dedup.Claim) error {
					close(holding)
					<-release
					return errors.New("roll back")
				})
			}()
			<-holding
			opened := pool.Stat().NewConnsCount()
			for delivery := 1; delivery <= 3; delivery++ {
				before, falsely := store.n.Load(), 0
				backoffs = nil
				for i, err := range c.ProcessBatch(t.Context(), batch) {
					retry, again := errors.AsType[*consumer.RetryError](err)
					switch {
					case isHeld[i] && (!again || !retry.Held || !errors.Is(err, dedup.ErrInFlight)):
						t.Errorf("delivery %d: message %d, whose key is held: %v", delivery, i, err)
					case !isHeld[i] && errors.Is(err, dedup.ErrInFlight):
						falsely++
					case !isHeld[i] && err != nil:
						t.Errorf("delivery %d: message %d: %v", delivery, i, err)
					}
				}
				// The server cancels the timed-out claim a moment later. Until then that claim holds its keys.
				if falsely > 0 && delivery > 1 || falsely > 30 {
					t.Errorf("delivery %d: %d messages with free keys were deferred", delivery, falsely)
				}
				if used := store.n.Load() - before; used > 3 {
					t.Errorf("delivery %d: %d transactions, want one that waits and one for the rest", delivery, used)
				}
				for _, n := range backoffs {
					if n > delivery || n < delivery && falsely == 0 {
						t.Errorf("delivery %d: the backoff of a held key was that of attempt %d", delivery, n)
					}
				}
			}
			if more := pool.Stat().NewConnsCount() - opened; more > 3 {
				t.Errorf("%d connections were opened for those that the waits have cost", more)
			}
			close(release)
			<-done
			for i, err := range c.ProcessBatch(t.Context(), batch) {
				if err != nil {
					t.Errorf("then message %d: %v", i, err)
				}
			}
			if found := len(db.Effects(t)); found != n {
				t.Errorf("%d effects, want %d", found, n)
			}
		})
	}
}
