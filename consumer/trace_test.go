package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/observe"
)

// A caller that follows its own message sees what the Config's hooks see, and nothing of other calls.
func TestWithTrace(t *testing.T) {
	own, configured := &events{}, &events{}
	c := newConsumer(t, config{Store: consumertest.NewStore(), Trace: configured.trace()})
	process(t, c, msg("other", "a"))
	configured.take()

	ctx := driver.WithTrace(t.Context(), own.trace())
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
	ctx = driver.WithTrace(t.Context(), &consumer.Trace{Done: func(context.Context, *consumer.Delivery, []consumer.MessageOutcome) { only++ }})
	process(t, c, msg("1", "a"))
	if err := c.Process(ctx, msg("1", "a")); err != nil || only != 1 {
		t.Errorf("Process: %v; the only hook was called %d times, want 1", err, only)
	}
}

// Hooks only observe: when all of them panic, messages are processed as without hooks.
func TestHooksThatPanic(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store, Backoff: noBackoff, Trace: &consumer.Trace{
		Start:   func(context.Context, *consumer.Delivery) context.Context { panic("Start") },
		Claimed: func(context.Context, *consumer.Delivery, []*consumer.Message) { panic("Claimed") },
		Attempt: func(context.Context, *consumer.Delivery, consumer.Attempt) { panic("Attempt") },
		Done:    func(context.Context, *consumer.Delivery, []consumer.MessageOutcome) { panic("Done") },
	}})
	if err := errors.Join(c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "a"), msg("2", "b")})...); err != nil {
		t.Error(err)
	}
	process(t, c, msg("3", "c"))
	for _, id := range []string{"1", "2", "3"} {
		wantCount(t, store.Database(), id, 1)
	}
	if n := len(letters(t, c)); n != 0 {
		t.Errorf("%d letters", n)
	}
}

type startKey struct{}

// The ctx of Start reaches the handler and the later hooks. Each message has exactly one outcome, and each transaction
// one Attempt.
func TestTraceOfABatch(t *testing.T) {
	var attempts []consumer.Attempt
	var got []string
	store := consumertest.NewStore()
	c := newConsumer(t, config{
		Store: store, Backoff: noBackoff,
		Trace: &consumer.Trace{
			Start: func(ctx context.Context, d *consumer.Delivery) context.Context {
				return context.WithValue(ctx, startKey{}, len(d.Messages))
			},
			Attempt: func(_ context.Context, _ *consumer.Delivery,
				a consumer.Attempt,
			) {
				attempts = append(attempts, a)
			},
			Done: func(ctx context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
				for i, o := range outcomes {
					got = append(got, fmt.Sprint(d.Messages[i].ID, " ", o.Outcome, " ", o.Cause, " ", o.Key.ID, " of ",
						ctx.Value(startKey{})))
				}
			},
		},
		Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if ctx.Value(startKey{}) == nil {
				t.Error("the handler has not got the ctx of Start")
			}
			if string(m.Payload) == "poison" {
				return consumer.Permanent(errPoison)
			}
			return tx.Add(m.ID)
		},
	})
	process(t, c, msg("0", "known"))
	got, attempts = nil, nil
	if errs := c.ProcessBatch(t.Context(), []*consumer.Message{
		msg("0", "known"), msg("1", "poison"), msg("4", "x"),
		msg("0", "other"),
	}); errors.Join(errs...) != nil {
		t.Error(errs)
	}
	want := []string{
		"0 duplicate  0 of 4", "1 parked permanent 1 of 4", "4 processed  4 of 4",
		"0 parked mismatch 0 of 4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	committed, failed := 0, 0
	for _, a := range attempts {
		if a.Took <= 0 || a.Claim <= 0 || a.Claim > a.Took {
			t.Errorf("durations of %+v", a)
		}
		switch {
		case a.Result == observe.Committed && a.Cause == "" && a.Err == nil:
			committed++
		case a.Result == observe.RolledBack && a.Cause != "" && a.Err != nil:
			failed++
		default:
			t.Errorf("attempt %+v", a)
		}
	}
	if committed == 0 || failed == 0 {
		t.Errorf("%d committed and %d failed transactions were told of", committed, failed)
	}
}
