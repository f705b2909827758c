package outboxtest_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

var errTooLarge = outbox.Permanent(errors.New("too large"))

// publisherHarness drives a FakePublisher that is made for each case.
func publisherHarness(atom, ordered bool) outboxtest.PublisherHarness {
	var fake *outboxtest.FakePublisher
	var silent *atomic.Bool
	h := outboxtest.PublisherHarness{
		New: func(*testing.T) outbox.Publisher {
			quiet := new(atomic.Bool)
			silent = quiet
			fake = &outboxtest.FakePublisher{AllOrNothing: atom, InOrder: ordered, Decide: func(m outbox.Message) outboxtest.Fate {
				switch {
				case quiet.Load():
					return outboxtest.Fate{Delay: time.Hour}
				case len(m.Payload) > 1<<20:
					return outboxtest.Fate{Err: errTooLarge}
				case m.Topic == "nowhere":
					return outboxtest.Fate{Err: &outbox.TopicError{Err: errors.New("no topic nowhere")}}
				}
				return outboxtest.Fate{}
			}}
			return fake
		},
		Topic: func(*testing.T) string { return "topic" },
		Read: func(_ *testing.T, topic string, _ int) (msgs []outbox.Message) {
			for _, p := range fake.Published() {
				if p.Topic == topic {
					p.ID = ""
					msgs = append(msgs, p.Message)
				}
			}
			return msgs
		},
		Oversize: func(m outbox.Message) outbox.Message {
			m.Payload = make([]byte, 1<<20+1)
			return m
		},
		Unroutable: func(*testing.T) string { return "nowhere" },
		Pause: func(*testing.T) func() {
			silent.Store(true)
			return func() { silent.Store(false) }
		},
		Stop: func(*testing.T) func() {
			fake.Down(0)
			return fake.Up
		},
		Run: synctest.Test,
	}
	h.Features = outboxtest.PublisherFeatures{Atomic: atom, Ordered: ordered, DoesNotApply: map[string]string{
		"unsafe settings are refused by name": "there is no client to be set",
	}}
	return h
}

func TestPublisherFake(t *testing.T) {
	t.Run("each for itself", func(t *testing.T) { outboxtest.TestPublisher(t, publisherHarness(false, false)) })
	t.Run("all or nothing", func(t *testing.T) { outboxtest.TestPublisher(t, publisherHarness(true, false)) })
	t.Run("in order", func(t *testing.T) { outboxtest.TestPublisher(t, publisherHarness(false, true)) })
}

func TestPublisherFakeUnavailable(t *testing.T) {
	f := new(outboxtest.FakePublisher)
	f.Down(time.Minute)
	errs := f.Publish(t.Context(), []outbox.Message{{ID: "1"}, {ID: "2"}})
	for _, err := range errs {
		if u := new(outbox.UnavailableError); !errors.As(err, &u) || u.After != time.Minute {
			t.Errorf("error %v, want an UnavailableError with its time", err)
		}
	}
	f.Up()
	if errs := f.Publish(t.Context(), []outbox.Message{{ID: "1"}}); errs != nil {
		t.Errorf("errors %v", errs)
	}
	if got := f.Confirmed(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("confirmed %v", got)
	}
}
