package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
	"github.com/txonce/txonce/consumer/consumertest"
)

// scripted answers its calls in the order of their ends. A call takes a second, so calls that begin together are at the
// same time.
type scripted struct {
	consumers
	mu      sync.Mutex
	calls   []scriptedCall
	answers []error // further calls: nil
}

type scriptedCall struct {
	ids   []string
	began time.Time
}

func (s *scripted) ProcessBatch(_ context.Context, msgs []*consumer.Message) (errs []error) {
	c := scriptedCall{began: time.Now()}
	<-time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := error(nil)
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	for _, m := range msgs {
		c.ids, errs = append(c.ids, m.ID), append(errs, answer)
	}
	s.calls = append(s.calls, c)
	return errs
}

// script delivers messages once for each of 100 seeds.
func script(t *testing.T, cfg chaos.Config, msgs []*consumer.Message, answers []error,
	check func(s *scripted, began time.Time, errs []error, panicked bool),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, consumertest.NewStore(), func(context.Context, tx, *consumer.Message) error { return nil })
		for n := range 100 {
			cfg.Seed = uint64(n) + 1
			s := &scripted{consumers: c, answers: answers}
			began := time.Now()
			errs, panicked := deliver(t.Context(), wrap(t, s, cfg), msgs)
			check(s, began, errs, panicked)
		}
	})
}

// A copy that comes at the same time never overtakes an earlier message of its key: it is of the first one.
func TestCopies(t *testing.T) {
	var batch []*consumer.Message
	for i := range 6 {
		batch = append(batch, &consumer.Message{ID: fmt.Sprint(i), OrderingKey: []string{"a", "b", ""}[i%3]})
	}
	atOnce, afterwards := 0, 0
	script(t, chaos.Config{Duplicate: 1}, batch, nil, func(s *scripted, began time.Time, errs []error, _ bool) {
		if len(errs) != 6 || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Fatalf("answers: %v", errs)
		}
		for _, call := range s.calls {
			switch {
			case call.began.After(began):
				afterwards++
			case len(call.ids) < 6:
				atOnce++
				if slices.Contains(call.ids, "3") || slices.Contains(call.ids, "4") {
					t.Errorf("copies %v overtake messages of their key", call.ids)
				}
			}
		}
	})
	if atOnce < 30 || afterwards < 30 {
		t.Errorf("%d calls with copies at the same time, %d afterwards", atOnce, afterwards)
	}
}

// When one of two copies fails, the message is delivered again. A copy does not have a message rejected that has taken
// effect.
func TestACopyFails(t *testing.T) {
	rejected := errors.New("rejected")
	msgs, afterwards := []*consumer.Message{{ID: "m"}}, 0
	answers := []error{nil, rejected}
	script(t, chaos.Config{Duplicate: 1}, msgs, answers, func(s *scripted, began time.Time, errs []error, _ bool) {
		if len(s.calls) != 2 {
			t.Fatalf("a message is processed %d times", len(s.calls))
		}
		if !errors.Is(errs[0], rejected) {
			t.Errorf("the answer is %v, and one of two copies was rejected", errs[0])
		}
		if s.calls[1].began.After(began) {
			afterwards++
			if _, again := errors.AsType[*consumer.RetryError](errs[0]); !again {
				t.Errorf("a copy has the message rejected: %v", errs[0])
			}
		}
	})
	if afterwards == 0 {
		t.Error("no copy comes afterwards")
	}
}

// Half of the panics come before the messages are processed, half after.
func TestPanics(t *testing.T) {
	processed := map[bool]int{}
	msgs := []*consumer.Message{{ID: "m"}}
	script(t, chaos.Config{Panic: .9}, msgs, nil, func(s *scripted, _ time.Time, _ []error, panicked bool) {
		if panicked {
			processed[len(s.calls) > 0]++
		}
	})
	if processed[true] < 30 || processed[false] < 30 {
		t.Errorf("panics after the messages were processed: %d, before: %d", processed[true], processed[false])
	}
}
