package consumer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A caller that follows its own message sees what the Config's hooks see, and nothing of other calls.
func TestWithTrace(t *testing.T) {
	own, configured := &events{}, &events{}
	c := newConsumer(t, config{Store: consumertest.NewStore(), Trace: configured.trace()})
	process(t, c, msg("other", "a"))
	configured.take()

	ctx := consumer.WithTrace(t.Context(), own.trace())
	for range 2 {
		if err := errors.Join(c.ProcessBatch(ctx, []*consumer.Message{msg("1", "a")})...); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"claimed 1", "processed 1", "duplicate 1"}
	if diff := cmp.Diff(want, own.take()); diff != "" {
		t.Errorf("own hooks: %s", diff)
	}
	if diff := cmp.Diff(want, configured.take()); diff != "" {
		t.Errorf("the Config's hooks: %s", diff)
	}

	only := 0
	ctx = consumer.WithTrace(t.Context(), &consumer.Trace{Done: func(context.Context, *consumer.Delivery, []consumer.MessageOutcome) { only++ }})
	process(t, c, msg("1", "a"))
	if err := c.Process(ctx, msg("1", "a")); err != nil || only != 1 {
		t.Errorf("Process: %v; the only hook was called %d times, want 1", err, only)
	}
}
