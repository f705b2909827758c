package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/breaker"
	"github.com/txonce/txonce/outbox"
)

var errDown = errors.New("connection refused")

// broker answers all messages of a call alike.
type broker struct {
	calls  int
	answer error
	took   time.Duration
}

func (b *broker) publish(_ context.Context, msgs []outbox.Message) []error {
	b.calls++
	<-time.After(b.took)
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = b.answer
	}
	return errs
}

func newBreaker(t *testing.T, cfg breaker.Config) *breaker.Breaker {
	t.Helper()
	cfg, err := cfg.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return breaker.New(cfg)
}

// publish returns how long the answer says to rest; 0: it does not.
func publish(t *testing.T, b *breaker.Breaker, to *broker) time.Duration {
	t.Helper()
	errs := b.Publish(t.Context(), make([]outbox.Message, 2), to.publish)
	if len(errs) != 2 {
		t.Fatalf("%d answers to 2 messages", len(errs))
	}
	var u *outbox.UnavailableError
	if !errors.As(errs[1], &u) {
		return 0
	}
	if !errors.Is(u, errDown) {
		t.Errorf("the cause is missing: %v", u)
	}
	return u.After
}

func TestPublisherBreakerRestsLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &broker{answer: &outbox.UnavailableError{Err: errDown}}
		b := newBreaker(t, breaker.Config{})
		for i, want := range []time.Duration{0, 0, time.Second} {
			if got := publish(t, b, down); got != want {
				t.Fatalf("failure %d: rest %v, want %v", i+1, got, want)
			}
		}
		<-time.After(400 * time.Millisecond)
		if got := publish(t, b, down); got != 600*time.Millisecond || down.calls != 3 {
			t.Fatalf("within the rest: rest %v, want 600ms; the broker was called %d times, want 3", got, down.calls)
		}
		<-time.After(600 * time.Millisecond)
		for _, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
			calls := down.calls
			got := publish(t, b, down)
			if got != want*time.Second || down.calls != calls+1 {
				t.Fatalf("after a rest: rest %v, want %v s; %d calls, want 1", got, want, down.calls-calls)
			}
			<-time.After(got - 1)
			if publish(t, b, down) != 1 || down.calls != calls+1 {
				t.Fatal("the rest ended too soon")
			}
			<-time.After(1)
		}
		up := &broker{}
		if publish(t, b, up) != 0 || up.calls != 1 {
			t.Fatal("the broker is back, and was not tried")
		}
		for i, want := range []time.Duration{0, 0, time.Second} { // from the start again
			if got := publish(t, b, down); got != want {
				t.Fatalf("failure %d: rest %v, want %v", i+1, got, want)
			}
		}
	})
}

func TestPublisherBreakerLetsOneCallTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1})
		publish(t, b, &broker{answer: &outbox.UnavailableError{Err: errDown}})
		<-time.After(time.Second)

		slow := &broker{took: 5 * time.Second}
		var calls sync.WaitGroup
		calls.Go(func() { publish(t, b, slow) })
		synctest.Wait()
		other := &broker{}
		if rest := publish(t, b, other); rest != time.Second || other.calls != 0 {
			t.Errorf("while one call tries: rest %v, want 1s; %d calls", rest, other.calls)
		}
		calls.Wait()
		if publish(t, b, other) != 0 || other.calls != 1 {
			t.Error("it succeeded, and the next was not let through")
		}
	})
}

func TestPublisherBreakerCountsOnlyTheBrokersFaults(t *testing.T) {
	down := &outbox.UnavailableError{Err: errDown}
	late := &outbox.UnavailableError{Err: fmt.Errorf("no answer: %w", context.DeadlineExceeded)}
	for _, test := range []struct {
		name  string
		errs  []error
		rests bool
		took  time.Duration
	}{
		{"all unavailable", []error{down, fmt.Errorf("x: %w", down)}, true, 0},
		{"no answer in time", []error{late, late}, true, time.Second},
		{"no time for an answer", []error{late, late}, false, time.Second - 1},
		{"unavailable beside refused for good", []error{down, outbox.Permanent(errors.New("too large"))}, true, 0},
		{"unavailable beside refused", []error{down, errors.New("unknown topic")}, true, 0},
		{"one of two confirmed", []error{down, nil}, false, 0},
		{"refused", []error{errors.New("unknown topic"), errors.New("unknown topic")}, false, 0},
		{"refused for good", []error{outbox.Permanent(errors.New("too large")), outbox.Permanent(errors.New("too large"))}, false, 0},
		{"the relay stops", []error{fmt.Errorf("x: %w", context.Canceled), fmt.Errorf("x: %w", context.Canceled)}, false, 0},
		{"all confirmed", nil, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{Failures: 3})
				calls := 0
				for range 5 {
					b.Publish(t.Context(), make([]outbox.Message, 2), func(context.Context, []outbox.Message) []error {
						calls++
						<-time.After(test.took)
						return append([]error(nil), test.errs...)
					})
				}
				if rests := calls == 3; rests != test.rests {
					t.Errorf("of 5 calls %d went through; rests: %v, want %v", calls, rests, test.rests)
				}
			})
		})
	}
}

// What tells nothing about the broker neither ends a rest nor begins a longer one.
func TestPublisherBreakerInconclusiveTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1})
		down := &broker{answer: &outbox.UnavailableError{Err: errDown}}
		publish(t, b, down)
		<-time.After(time.Second)
		publish(t, b, &broker{answer: context.Canceled})
		publish(t, b, &broker{answer: outbox.Permanent(errors.New("too large"))})
		if rest := publish(t, b, down); rest != 2*time.Second {
			t.Errorf("then the broker is found still down: rest %v, want 2s", rest)
		}
	})
}

func TestPublisherBreakerRefusesItsConfig(t *testing.T) {
	for field, cfg := range map[string]breaker.Config{
		"Failures": {Failures: -1},
		"Rest":     {Rest: -1},
		"MaxRest":  {Rest: time.Minute, MaxRest: time.Second},
	} {
		if _, err := cfg.WithDefaults(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v; want an error that names %s", cfg, err, field)
		}
	}
	cfg, err := breaker.Config{Rest: time.Minute}.WithDefaults()
	if want := (breaker.Config{Failures: 3, Rest: time.Minute, MaxRest: time.Minute}); err != nil || cfg != want {
		t.Errorf("%+v, %v; want %+v", cfg, err, want)
	}
}
