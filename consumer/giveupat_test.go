package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/observe"
)

// A source that gives up must not give up before the consumer does: a failure at GiveUpAt or later parks the message. A
// fault of the database does not, because nothing can be parked then.
func TestAFailureAfterGiveUpAtParks(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore()}
	fails := errors.New("not yet")
	c := newConsumer(t, config{Store: store, Backoff: noBackoff, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		if string(m.Payload) == "fault" {
			return tx.Fail(errFault)
		}
		return fails
	}})
	one := func(id, payload string, last bool) error {
		m := msg(id, payload)
		if m.Time = time.Now(); last {
			m.GiveUpAt = m.Time
		} else {
			m.GiveUpAt = m.Time.Add(time.Hour)
		}
		return c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
	}
	for range 5 {
		wantRetry(t, one("first", "", false), false)
	}
	wantRetry(t, one("down", "fault", true), true)
	if found := letters(t, c); len(found) != 0 {
		t.Fatalf("parked before the last attempt: %v", found)
	}
	if err := one("last", "", true); err != nil {
		t.Errorf("the last attempt: %v, want nil because it is parked", err)
	}
	found := letters(t, c)
	if len(found) != 1 || found[0].Message.ID != "last" || found[0].Cause != observe.CauseExhausted ||
		!found[0].Message.GiveUpAt.IsZero() {
		t.Errorf("letters %+v, want one of \"last\", without GiveUpAt", found)
	}
	if store.Database().Open() != 0 {
		t.Error("a transaction is open")
	}
}

// The time of the failure decides, to the nanosecond, and not that of the delivery.
func TestGiveUpAtPassesWhileTheHandlerRuns(t *testing.T) {
	for _, tc := range []struct {
		name    string
		takes   time.Duration
		letters int
	}{
		{"fails before GiveUpAt", time.Minute - 1, 0},
		{"fails at GiveUpAt", time.Minute, 1},
		{"fails after GiveUpAt", time.Hour, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: func(context.Context, tx, *consumer.Message) error {
					<-time.After(tc.takes)
					return errors.New("not yet")
				}})
				m := msg("1", "")
				m.GiveUpAt = time.Now().Add(time.Minute)
				err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
				if n := len(letters(t, c)); n != tc.letters || (err == nil) != (n == 1) {
					t.Errorf("%d letters, %v; want %d", n, err, tc.letters)
				}
			})
		})
	}
}

// Many old messages arrive at once after a long outage. None may wait for the trial of another one, as messages with a
// very high Attempt do, because its source may not deliver it again.
func TestMessagesAfterGiveUpAtRunAtTheSameTime(t *testing.T) {
	store, both := consumertest.NewStore(), make(chan struct{}, 2)
	c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
		both <- struct{}{}
		for len(both) < 2 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
		return tx.Add(m.ID)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answers := make(chan error, 2)
	for _, id := range []string{"1", "2"} {
		m := msg(id, "")
		m.GiveUpAt = time.Now()
		go func() { answers <- c.ProcessBatch(ctx, []*consumer.Message{m})[0] }()
	}
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if found := letters(t, c); len(found) != 0 {
		t.Errorf("letters %v", found)
	}
}
