package outboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
)

// brokenPublisher breaks one rule, and is found by at least these cases.
type brokenPublisher struct {
	name    string
	found   []string
	atomic  bool
	ordered bool
	// breaks is a publisher on top of fake. Nil: fake itself.
	breaks func(fake *FakePublisher) func(ctx context.Context, msgs []outbox.Message) []error
	// harness changes what else the case sees.
	harness func(h *PublisherHarness, fake *FakePublisher)
}

// publisherFunc is a Publisher on top of another one.
type publisherFunc struct {
	*FakePublisher
	publish func(ctx context.Context, msgs []outbox.Message) []error
}

func (p publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) []error {
	return p.publish(ctx, msgs)
}

// fakeHarness has a broker of its own for each case.
func fakeHarness(b brokenPublisher) PublisherHarness {
	var silent atomic.Bool
	fake := &FakePublisher{AllOrNothing: b.atomic, InOrder: b.ordered, Decide: func(m outbox.Message) Fate {
		switch {
		case silent.Load():
			return Fate{Delay: time.Hour}
		case len(m.Payload) > 1<<20:
			return Fate{Err: outbox.Permanent(errors.New("too large"))}
		case m.Topic == "nowhere":
			return Fate{Err: &outbox.TopicError{Err: errors.New("no topic nowhere")}}
		}
		return Fate{}
	}}
	h := PublisherHarness{
		New: func(*testing.T) outbox.Publisher {
			if b.breaks == nil {
				return fake
			}
			return publisherFunc{fake, b.breaks(fake)}
		},
		Topic: func(*testing.T) string { return "topic" },
		Read: func(_ *testing.T, topic string, _ int) (msgs []outbox.Message) {
			for _, p := range fake.Published() {
				if p.Topic == topic {
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
		Unsafe:     []Unsafe{{"Acks", func(*testing.T) error { return errors.New("Acks must be all") }}},
		Pause: func(*testing.T) func() {
			silent.Store(true)
			return func() { silent.Store(false) }
		},
		Stop: func(*testing.T) func() {
			fake.Down(0)
			return fake.Up
		},
		Features: PublisherFeatures{Atomic: b.atomic, Ordered: b.ordered},
	}
	if b.harness != nil {
		b.harness(&h, fake)
	}
	return h
}

func recordPublisher(t *testing.T, b brokenPublisher, c publisherCase) string {
	return record(t, func(t *testing.T, tb testing.TB) { c.run(newPublisherEnv(t, tb, fakeHarness(b), c)) })
}

func TestPublisherSuiteFindsBrokenPublishers(t *testing.T) {
	cases, found := map[string]publisherCase{}, map[string]bool{}
	for _, c := range publisherCases() {
		cases[c.name] = c
	}
	for _, b := range brokenPublishers() {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.found {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("%q is no case", name)
				}
				found[name] = true
				switch said := recordPublisher(t, b, c); {
				case said == "":
					t.Errorf("case %q does not find it", name)
				case !strings.Contains(said, c.hazard):
					t.Errorf("case %q does not name the hazard: %s", name, said)
				default:
					t.Logf("%s: %.200s", name, said)
				}
			}
		})
	}
	for name := range cases { // a case that nothing can fail shows nothing
		if !found[name] {
			t.Errorf("no broken publisher is found by case %q", name)
		}
	}
}

// A publisher that is not broken passes under the same machinery.
func TestPublisherSuiteRecorderIsFair(t *testing.T) {
	for _, c := range publisherCases() {
		b := brokenPublisher{atomic: c.atomic == yes, ordered: c.ordered, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return fake.Publish
		}}
		if said := recordPublisher(t, b, c); said != "" {
			t.Errorf("case %q of a publisher that is not broken: %s", c.name, said)
		}
	}
}

// answers changes the answers for messages that were really published.
func answers(change func(msgs []outbox.Message, errs []error) []error) func(*FakePublisher) func(context.Context, []outbox.Message) []error {
	return func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
		return func(ctx context.Context, msgs []outbox.Message) []error {
			errs := fake.Publish(ctx, msgs)
			if errs == nil {
				errs = make([]error, len(msgs))
			}
			return change(msgs, errs)
		}
	}
}

// each changes the answer for each message.
func each(change func(m outbox.Message, err error) error) func(*FakePublisher) func(context.Context, []outbox.Message) []error {
	return answers(func(msgs []outbox.Message, errs []error) []error {
		for i := range errs {
			errs[i] = change(msgs[i], errs[i])
		}
		return errs
	})
}

// sends changes the messages that are published.
func sends(change func(m *outbox.Message)) func(*FakePublisher) func(context.Context, []outbox.Message) []error {
	return func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
		return func(ctx context.Context, msgs []outbox.Message) []error {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				msgs[i].Headers = maps.Clone(msgs[i].Headers)
				change(&msgs[i])
			}
			return fake.Publish(ctx, msgs)
		}
	}
}
