package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A BatchHandler that names a wrong message costs time and nothing else.
func TestALyingMessageError(t *testing.T) {
	const n = 300
	for name, blamed := range map[string]func(msgs []*consumer.Message) *consumer.Message{
		"the first":     func(msgs []*consumer.Message) *consumer.Message { return msgs[0] },
		"the last":      func(msgs []*consumer.Message) *consumer.Message { return msgs[len(msgs)-1] },
		"the middle":    func(msgs []*consumer.Message) *consumer.Message { return msgs[len(msgs)/2] },
		"none":          func([]*consumer.Message) *consumer.Message { return nil },
		"a foreign one": func([]*consumer.Message) *consumer.Message { return msg("0", "x") },
	} {
		for _, poison := range []int{0, n / 3, n - 1} {
			t.Run(fmt.Sprint(name, ", poison ", poison), func(t *testing.T) {
				store := &claimed{Store: consumertest.NewStore()}
				c := newConsumer(t, config{Store: store, MaxAttempts: 1, HandleBatch: func(_ context.Context, tx tx, msgs []*consumer.Message) error {
					var failed error
					for _, m := range msgs {
						if m.ID == fmt.Sprint(poison) {
							failed = &consumer.MessageError{
								Message: blamed(msgs),
								Err:     consumer.Permanent(errors.New("poison")),
							}
						}
						if err := tx.Add(m.ID); err != nil {
							return err
						}
					}
					return failed
				}})
				batch := make([]*consumer.Message, n)
				for i := range batch {
					batch[i] = msg(fmt.Sprint(i), "x")
				}
				for i, err := range c.ProcessBatch(t.Context(), batch) {
					want := 1
					if i == poison {
						want = 0
					}
					if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
					wantCount(t, store.Database(), batch[i].ID, want)
				}
				if found := letters(t, c); len(found) != 1 || found[0].Message.ID != fmt.Sprint(poison) {
					t.Errorf("letters: %+v", found)
				}
				if most := n * (bits.Len(n) + 4); store.claims > most {
					t.Errorf("%d claims, want at most %d", store.claims, most)
				}
			})
		}
	}
}

// When a BatchHandler has too little time for all of its messages, the message that it names is not to blame. The
// halves of the batch are fast enough.
func TestAMessageErrorAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 64, 10 * time.Second
		store, calls := consumertest.NewStore(), 0
		c := newConsumer(t, config{Store: store, HandlerTimeout: limit, HandleBatch: func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
			calls++
			for _, m := range msgs {
				select {
				case <-ctx.Done():
					return &consumer.MessageError{Message: m, Err: ctx.Err()}
				case <-time.After(limit / (n - 4)):
				}
				if err := tx.Add(m.ID); err != nil {
					return err
				}
			}
			return nil
		}})
		batch := poisoned(n, 0, "")
		for i, err := range c.ProcessBatch(t.Context(), batch) {
			if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
			wantCount(t, store.Database(), batch[i].ID, 1)
		}
		if calls != 3 {
			t.Errorf("%d calls, want one that is too slow and two halves", calls)
		}
	})
}
