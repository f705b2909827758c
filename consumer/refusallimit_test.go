package consumer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A stranger sends a captured event again under ever new IDs, or other captured events under a known ID. Only the limit
// of such messages may be spent: genuine ones run at once.
func TestRefusedMessagesStopNoOthers(t *testing.T) {
	replay := func(i int) *consumer.Message {
		m := msg(fmt.Sprint("replay-", i), "captured")
		m.Aliases = []string{"captured"}
		return m
	}
	mismatch := func(i int) *consumer.Message { return msg("known", fmt.Sprint("other-", i)) }
	for name, stranger := range map[string]func(int) *consumer.Message{
		"known content": replay,
		"mismatches":    mismatch,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := consumertest.NewStore(), new(logs)
				c := newConsumer(t, config{
					Store: store, ParkLimit: consumer.ParkLimit{Burst: 3, PerMinute: 1},
					Logger: log.logger(),
				})
				first := msg("known", "captured")
				first.Aliases = []string{"captured"}
				process(t, c, first)
				for i := range 10 {
					err := c.ProcessBatch(t.Context(), []*consumer.Message{stranger(i)})[0]
					retry, again := errors.AsType[*consumer.RetryError](err)
					if parked := i < 3; parked != (err == nil) ||
						!parked && (!again || !errors.Is(err, consumer.ErrParkLimit) || !retry.Held ||
							retry.After <= 0) {
						t.Fatalf("message %d of a stranger: %v", i, err)
					}
					if err := c.ProcessBatch(t.Context(),
						[]*consumer.Message{msg(fmt.Sprint("genuine-", i), "")})[0]; err != nil {
						t.Fatalf("a genuine message beside it: %v", err)
					}
				}
				if n := len(letters(t, c)); n != 3 {
					t.Errorf("%d letters, want 3", n)
				}
				if n := log.lines("other messages go on"); n != 1 {
					t.Errorf("%d lines about the limit, want 1", n)
				}
				<-time.After(2 * time.Minute)
				if err := c.ProcessBatch(t.Context(), []*consumer.Message{stranger(11)})[0]; err != nil {
					t.Errorf("after the limit is there again: %v", err)
				}
			})
		})
	}
}
