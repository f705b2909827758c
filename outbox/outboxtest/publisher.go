package outboxtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// PublisherHarness lets the suite use one kind of publisher. The fields of the first group are required. The others are
// hooks that single cases need.
type PublisherHarness struct {
	// New makes a publisher, and closes it when t ends.
	New func(t *testing.T) outbox.Publisher
	// Topic makes an empty topic, with several partitions where there are any.
	Topic func(t *testing.T) string
	// Read returns all messages in topic, those of one key in the broker's order. It waits until n are there, and then
	// a while for more. It fills in Topic, OrderingKey, Payload and Headers.
	Read func(t *testing.T, topic string, n int) []outbox.Message

	// Features says what the publisher can do.
	Features PublisherFeatures

	// Oversize changes m so that the broker or the publisher refuses it permanently.
	Oversize func(m outbox.Message) outbox.Message
	// Unroutable names a topic that is missing or denied, while others are not: a message to it is an
	// *outbox.TopicError.
	Unroutable func(t *testing.T) string
	// Unsafe lists the client settings that lose messages.
	Unsafe []Unsafe
	// Pause keeps the broker from answering, with its connections open, until resume is called.
	Pause func(t *testing.T) (resume func())
	// Stop takes the broker away, with its messages kept, until start is called, which returns when the broker answers.
	Stop func(t *testing.T) (start func())

	// Run runs one case: it may call t.Parallel first, or be synctest.Test.
	//
	// Defaults to calling c.
	Run func(t *testing.T, c func(t *testing.T))
}

// Unsafe is a client setting that loses or reorders messages.
type Unsafe struct {
	Setting string                   // as the client's documentation calls it
	New     func(t *testing.T) error // constructs a publisher with it; the error must name Setting
}

// PublisherFeatures says what a publisher can do. It is data, as Features is.
type PublisherFeatures struct {
	// Atomic says that it is an driver.AtomicPublisher whose Atomic is true.
	Atomic bool

	// Ordered says that it is an driver.OrderedPublisher whose Ordered is true.
	Ordered bool

	// DoesNotApply has a reason for each case that cannot exist on this broker. A case whose hook is nil fails.
	DoesNotApply map[string]string
}

// TestPublisher runs the suite that every publisher must pass. Each case is a sub-test of its own, with a publisher and
// a topic of its own.
func TestPublisher(t *testing.T, h PublisherHarness) {
	all := publisherCases()
	for name := range h.Features.DoesNotApply {
		if !slices.ContainsFunc(all, func(c publisherCase) bool { return c.name == name }) {
			t.Errorf("Features.DoesNotApply names %q, which is no case of the suite", name)
		}
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if reason := h.without(c); reason != "" {
				t.Logf("does not apply: %s", reason)
				return
			}
			run := h.Run
			if run == nil {
				run = func(t *testing.T, c func(t *testing.T)) { c(t) }
			}
			run(t, func(t *testing.T) { c.run(newPublisherEnv(t, t, h, c)) })
		})
	}
}

func (h *PublisherHarness) without(c publisherCase) string {
	switch {
	case c.together && !h.Features.Atomic && !h.Features.Ordered:
		return "the publisher gets at most one message of a key per call"
	case c.ordered && !h.Features.Ordered:
		return "the publisher does not promise the order behind a failure"
	case c.atomic == yes && !h.Features.Atomic:
		return "the publisher is not all-or-nothing"
	case c.atomic == no && h.Features.Atomic:
		return "the publisher is all-or-nothing: see the cases of a call that fails as a whole"
	}
	return h.Features.DoesNotApply[c.name]
}

// publisherCase is one rule. Its name is the rule, so that a failure names the broken rule.
type publisherCase struct {
	name     string
	hazard   string
	atomic   answer // whether the case needs an atomic publisher
	together bool   // it needs one that takes several messages of a key per call
	ordered  bool   // it needs an ordered publisher
	run      func(e *publisherEnv)
}

// answer is yes, no or either.
type answer int

const (
	either answer = iota
	yes
	no
)

// publisherEnv is the environment of one case.
type publisherEnv struct {
	judge
	PublisherHarness
	t         *testing.T // for the harness
	ctx       context.Context
	publisher outbox.Publisher
	topic     string
	seq       int64
}

// newPublisherEnv makes the publisher and the topic of a case. Complaints go to tb.
func newPublisherEnv(t *testing.T, tb testing.TB, h PublisherHarness, c publisherCase) *publisherEnv {
	tb.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	e := &publisherEnv{judge: judge{tb, c.hazard}, PublisherHarness: h, t: t, ctx: ctx}
	e.publisher, e.topic = h.New(t), h.Topic(t)
	atomic, ok := e.publisher.(driver.AtomicPublisher)
	if got := ok && atomic.Atomic(); got != h.Features.Atomic {
		e.Fatalf("Atomic is %v, and Features.Atomic %v", got, h.Features.Atomic)
	}
	ordered, ok := e.publisher.(driver.OrderedPublisher)
	if got := ok && ordered.Ordered(); got != h.Features.Ordered {
		e.Fatalf("Ordered is %v, and Features.Ordered %v", got, h.Features.Ordered)
	}
	return e
}

func publisherCases() []publisherCase {
	return slices.Concat(
		arrivalCases(),
		refusalCases(),
		outageCases(),
	)
}

// message returns a message as a relay passes it, with the headers of the layout.
func (e *publisherEnv) message(id, key string) outbox.Message {
	return e.laidOut(outbox.Message{
		ID: id, Topic: e.topic, OrderingKey: key, Payload: []byte("payload of " + id),
		Headers: map[string]string{"own": "header of " + id},
	})
}

func (e *publisherEnv) laidOut(m outbox.Message) outbox.Message {
	e.seq++
	m.Headers = outbox.PlainHeaders(outbox.Stored{Message: m, Seq: e.seq, Enqueued: time.Now()})
	return m
}

// publish calls Publish once and checks the number of answers.
func (e *publisherEnv) publish(ctx context.Context, msgs ...outbox.Message) []error {
	e.Helper()
	errs := e.publisher.Publish(ctx, msgs)
	if errs == nil {
		return make([]error, len(msgs))
	}
	if len(errs) != len(msgs) {
		e.Fatalf("%d answers for %d messages", len(errs), len(msgs))
	}
	return errs
}

// confirm publishes, and fails if any message is not confirmed.
func (e *publisherEnv) confirm(msgs ...outbox.Message) {
	e.Helper()
	for i, err := range e.publish(e.ctx, msgs...) {
		if err != nil {
			e.Fatalf("message %.80q, %d of %d: %v", msgs[i].ID, i, len(msgs), err)
		}
	}
}

// arrived reads topic and returns its messages by ID, and how often each is there.
func (e *publisherEnv) arrived(topic string, n int) (byID map[string]outbox.Message, times map[string]int) {
	e.Helper()
	byID, times = map[string]outbox.Message{}, map[string]int{}
	for _, m := range e.Read(e.t, topic, n) {
		id := m.Headers[outbox.HeaderID]
		byID[id] = m
		times[id]++
	}
	return byID, times
}

// wantArrived fails when the topic has other messages than want.
func (e *publisherEnv) wantArrived(want ...outbox.Message) {
	e.Helper()
	byID, times := e.arrived(e.topic, len(want))
	for _, m := range want {
		got, ok := byID[m.ID]
		if !ok {
			e.Errorf("message %.80q was confirmed and is not in the broker", m.ID)
			continue
		}
		if times[m.ID] != 1 {
			e.Errorf("message %.80q is there %d times after one call", m.ID, times[m.ID])
		}
		got.ID = m.ID // Read need not know it; it was found by HeaderID
		e.wantSame(got, m)
		delete(byID, m.ID)
	}
	for id := range byID {
		e.Errorf("message %.80q is in the broker, and was refused", id)
	}
}
