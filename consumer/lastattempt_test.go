package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/observe"
)

// A source that gives up must not give up before the consumer does: the failure of a last attempt parks the message. A fault of the
// database does not, because nothing can be parked then.
func TestALastAttemptIsParkedAtItsFirstFailure(t *testing.T) {
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
		m.LastAttempt, m.Time = last, time.Now()
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
	if len(found) != 1 || found[0].Message.ID != "last" || found[0].Reason != observe.CauseExhausted || found[0].Message.LastAttempt {
		t.Errorf("letters %+v, want one of \"last\", without LastAttempt", found)
	}
	if store.Database().Open() != 0 {
		t.Error("a transaction is open")
	}
}

// Many old messages arrive at once after a long outage. None may wait for the trial of another one, as messages with a very high
// Attempt do, because its source may not deliver it again.
func TestLastAttemptsRunAtTheSameTime(t *testing.T) {
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
		m.LastAttempt = true
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
