package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

type publisherFunc func(ctx context.Context, msgs []outbox.Message) []error

func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) []error {
	return f(ctx, msgs)
}

func TestNewWorkerRefusesSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  webhook.WorkerConfig
		says string
	}{
		{"no processor", webhook.WorkerConfig{}, "WorkerConfig.Processor is required"},
		{
			"a nil processor",
			webhook.WorkerConfig{Processor: (*consumer.Consumer[tx])(nil)},
			"WorkerConfig.Processor is required",
		},
		{
			"E19: the inbox itself",
			webhook.WorkerConfig{Processor: newInbox(t, consumertest.NewStore(), nil)},
			"it would take each event for a duplicate",
		},
		{"a negative batch", webhook.WorkerConfig{Processor: always(nil), MaxBatch: -1}, "WorkerConfig.MaxBatch is -1"},
	} {
		if _, err := webhook.NewWorker(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// The relay decides by these answers whether to count an attempt, to wait, or to park.
func TestAnswersOfAWorker(t *testing.T) {
	fails := errors.New("not yet")
	out := func(ids ...string) (msgs []outbox.Message) {
		for _, id := range ids {
			msgs = append(msgs, outbox.Message{ID: id, Topic: "billing.inbox", Headers: map[string]string{webhook.HeaderID: id, webhook.HeaderTenant: "shop"}})
		}
		return msgs
	}
	word := func(err error) string {
		unavailable, isUnavailable := errors.AsType[*outbox.UnavailableError](err)
		switch {
		case err == nil:
			return "sent"
		case errors.Is(err, driver.ErrNotTried):
			return "not tried"
		case errors.Is(err, context.DeadlineExceeded):
			return "out of time"
		case isUnavailable:
			return "unavailable " + unavailable.After.String()
		case outbox.IsPermanent(err):
			return "permanent"
		default:
			return "failed"
		}
	}
	retry := func(after time.Duration, uncounted bool) error {
		return &consumer.RetryError{
			Err: fmt.Errorf("%w: %w", fails, context.DeadlineExceeded), After: after,
			Held: uncounted,
		}
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"handled", nil, "sent"},
		{"failed; its own timeout is not the relay's", retry(time.Hour, false), "failed"},
		{"the database is away", retry(time.Second, true), "unavailable 1s"},
		{"a long pause", retry(time.Hour, true), "unavailable 5s"},
		{"given up and not kept", fails, "permanent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := newWorker(t, webhook.WorkerConfig{Processor: always(c.err)}).Publish(t.Context(), out("1"))
			if word(errs[0]) != c.want {
				t.Errorf("answer %v: %s, want %s", errs[0], word(errs[0]), c.want)
			}
		})
	}
	t.Run("attempts are counted until the event is handled", func(t *testing.T) {
		var attempts []int
		results := []error{retry(0, false), retry(0, true), retry(0, false), nil, retry(0, false)}
		w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
			attempts = append(attempts, msgs[0].Attempt)
			return []error{results[len(attempts)-1]}
		})})
		for range results {
			w.Publish(t.Context(), out("1"))
		}
		if diff := cmp.Diff([]int{1, 2, 2, 3, 1}, attempts); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a handler that is slower than the call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(ctx context.Context, msgs []*consumer.Message) []error {
				select {
				case <-ctx.Done():
					return []error{&consumer.RetryError{Err: ctx.Err(), Held: true}}
				case <-time.After(6 * time.Second):
					return []error{nil}
				}
			})})
			for _, c := range []struct {
				timeout time.Duration
				want    []string
			}{
				{10 * time.Second, []string{"sent", "not tried", "not tried"}}, // the second one had too little time
				{5 * time.Second, []string{"out of time", "not tried", "not tried"}},
				{time.Minute, []string{"sent", "sent", "sent"}},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				var got []string
				for _, err := range w.Publish(ctx, out("1", "2", "3")) {
					got = append(got, word(err))
				}
				cancel()
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%v: %s", c.timeout, diff)
				}
			}
		})
	})
	t.Run("a database that fails is not asked for each event", func(t *testing.T) {
		calls := 0
		w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
			calls++
			return []error{retry(0, true)}
		})})
		ids := make([]string, 1000)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		errs := w.Publish(t.Context(), out(ids...))
		if calls != 20 || word(errs[19]) != "unavailable 0s" || word(errs[20]) != "not tried" {
			t.Errorf("%d calls, %v, %v", calls, errs[19], errs[20])
		}
	})
	t.Run("batches", func(t *testing.T) {
		var sizes []int
		w := newWorker(t, webhook.WorkerConfig{MaxBatch: 2, Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
			sizes = append(sizes, len(msgs))
			return make([]error, len(msgs))
		})})
		w.Publish(t.Context(), out("1", "2", "3"))
		if diff := cmp.Diff([]int{2, 1}, sizes); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a Starter", func(t *testing.T) {
		p := &sourced{answers: always(nil), starts: []error{fails, nil}}
		w := newWorker(t, webhook.WorkerConfig{Processor: p})
		for _, want := range []string{"unavailable 0s", "sent", "sent"} {
			if got := word(w.Publish(t.Context(), out("1"))[0]); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
	t.Run("what no Inbox has forwarded is malformed", func(t *testing.T) {
		for _, headers := range []map[string]string{
			nil,
			{webhook.HeaderID: "1", webhook.HeaderTime: "yesterday"},
			{webhook.HeaderID: "1", webhook.HeaderFingerprint: "00"},
			{webhook.HeaderID: "1", webhook.HeaderFingerprint: "zzzzzzzzzzzzzzzz"},
		} {
			var malformed error
			w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
				malformed = msgs[0].Malformed
				return []error{nil}
			})})
			w.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "t", Headers: headers}})
			if malformed == nil {
				t.Errorf("headers %v are taken for those of an Inbox", headers)
			}
		}
	})
}

// A nil answer makes the relay delete the event, so it must not come before the consumer has committed the effect.
func TestWorkerAnswersAfterTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		committed, answered := make(chan struct{}), make(chan []error, 1)
		w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
			<-committed
			return make([]error, len(msgs))
		})})
		go func() {
			answered <- w.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "billing.inbox", Headers: map[string]string{webhook.HeaderID: "1", webhook.HeaderTenant: "shop"}}})
		}()
		synctest.Wait()
		if len(answered) != 0 {
			t.Errorf("the event is answered with %v before it is processed", <-answered)
		}
		close(committed)
		if errs := <-answered; errs[0] != nil {
			t.Error(errs[0])
		}
	})
}
