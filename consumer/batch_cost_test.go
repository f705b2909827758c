package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// claimed is a store that counts the rows that transactions with handlers claim.
type claimed struct {
	*consumertest.Store
	claims int
}

func (c *claimed) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	c.claims += len(recs)
	return c.Store.InTx(ctx, recs, fn)
}

// Whichever messages of a batch fail, each message costs two handler calls at most. It costs six claims at most if the
// failing messages are known, and otherwise a logarithm of the size of the batch.
func TestTheCostOfABatchWhoseMessagesFail(t *testing.T) {
	const n = 500
	log := bits.Len(n)
	errHandler := errors.New("handler")
	for _, pattern := range []struct {
		name  string
		fails func(i int) bool
	}{
		{"none", func(int) bool { return false }},
		{"all", func(int) bool { return true }},
		{"the first", func(i int) bool { return i == 0 }},
		{"one in the middle", func(i int) bool { return i == n/2 }},
		{"the last", func(i int) bool { return i == n-1 }},
		{"every second", func(i int) bool { return i%2 == 0 }},
		{"every third", func(i int) bool { return i%3 == 0 }},
		{"every 50th", func(i int) bool { return i%50 == 7 }},
		{"the first half", func(i int) bool { return i < n/2 }},
		{"the second half", func(i int) bool { return i >= n/2 }},
		{"all but the last", func(i int) bool { return i < n-1 }},
		{"powers of two", func(i int) bool { return i&(i-1) == 0 }},
	} {
		for _, how := range []string{"Handle", "HandleBatch", "MessageError"} {
			whole := how == "HandleBatch"
			t.Run(pattern.name+", "+how, func(t *testing.T) {
				store, calls, failing := &claimed{Store: consumertest.NewStore()}, 0, 0
				batch := make([]*consumer.Message, n)
				fails := map[string]bool{}
				for i := range batch {
					batch[i] = msg(fmt.Sprint(i), "x")
					if fails[batch[i].ID] = pattern.fails(i); fails[batch[i].ID] {
						failing++
					}
				}
				one := func(tx tx, m *consumer.Message) error {
					if err := tx.Add(m.ID); err != nil || !fails[m.ID] {
						return err
					}
					return errHandler
				}
				cfg := config{Store: store, Backoff: noBackoff}
				if how != "Handle" {
					cfg.HandleBatch = func(_ context.Context, tx tx, msgs []*consumer.Message) error {
						calls++
						for _, m := range msgs {
							switch err := one(tx, m); {
							case err != nil && !whole:
								return &consumer.MessageError{Message: m, Err: err}
							case err != nil:
								return err
							}
						}
						return nil
					}
				} else {
					cfg.Handle = func(_ context.Context, tx tx,
						m *consumer.Message,
					) error {
						calls++
						return one(tx, m)
					}
				}
				for i, err := range newConsumer(t, cfg).ProcessBatch(t.Context(), batch) {
					want := 1
					if fails[batch[i].ID] {
						want = 0
						wantRetry(t, err, false)
					} else if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
					wantCount(t, store.Database(), batch[i].ID, want)
				}
				most := n
				switch {
				case failing > 0 && whole:
					most = n * (log + 1)
				case failing > 0:
					most = 6 * n
				}
				if calls > 2*n || store.claims > most {
					t.Errorf("%d calls of the handler and %d claims for %d messages of which %d fail, want at most %d and %d",
						calls, store.claims, n, failing, 2*n, most)
				}
				t.Logf("%d calls of the handler, %d claims", calls, store.claims)
			})
		}
	}
}

func TestABatchRunsNoHandlerForWhatIsRefused(t *testing.T) {
	store := consumertest.NewStore()
	runs := 0
	c := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error { runs++; return tx.Add(m.ID) }})
	process(t, c, msg("1", "a"))
	runs = 0
	batch := poisoned(50, 0, "")
	batch[49] = msg("1", "other")
	batch[20] = msg("", "no key")
	batch[1] = msg("x", "b")
	if errs := c.ProcessBatch(t.Context(), batch); !slices.Equal(errs, make([]error, 50)) {
		t.Error(errs)
	}
	if runs != 48 {
		t.Errorf("%d runs for 48 new messages", runs)
	}
	var causes []string
	for _, l := range letters(t, c) {
		causes = append(causes, string(l.Cause))
	}
	slices.Sort(causes)
	if diff := cmp.Diff([]string{"mismatch", "no_key"}, causes); diff != "" {
		t.Error(diff)
	}
}
