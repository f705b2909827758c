package consumertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// subscriberPatience is how long a case waits for something that must happen.
const subscriberPatience = 2 * time.Minute

// longGrace is for cases that are not about the grace period.
const longGrace = time.Minute

// idHeader holds the business key of the suite's messages.
const idHeader = "suite-id"

// subscriberEnv is the environment of a case: a broker and a database.
type subscriberEnv struct {
	*testing.T
	features Features
	broker   Broker
	db       *deduptest.Database
	log      *slog.Logger // shown when the case fails
}

func newSubscriberEnv(t *testing.T, features Features, broker Broker) *subscriberEnv {
	var log lockedBuffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the consumers' log:\n" + log.String())
		}
	})
	return &subscriberEnv{
		T: t, features: features, broker: broker,
		db: deduptest.NewDatabase(), log: slog.New(slog.NewTextHandler(&log, nil)),
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type suiteHandler = consumer.Handler[*deduptest.Tx]

// processor returns a Consumer that runs handle on the case's database, as a process of its own.
func (e *subscriberEnv) processor(handle suiteHandler) *tapped {
	e.Helper()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name:    "suite",
		Store:   NewStoreOn(e.db),
		Key:     consumer.HeaderKey(idHeader),
		Handle:  handle,
		Backoff: func(int) time.Duration { return 50 * time.Millisecond },
		Logger:  e.log,
	})
	if err != nil {
		e.Fatal(err)
	}
	return &tapped{Consumer: c}
}

// suiteEffect is the handler of most cases. It counts that the message ran.
func suiteEffect(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
	return tx.Add(msg.Headers[idHeader])
}

// tapped is a Consumer that records its deliveries. before and after may replace its answers.
type tapped struct {
	*consumer.Consumer[*deduptest.Tx]
	before func(ctx context.Context, msg *consumer.Message) error            // an error is the answer
	after  func(ctx context.Context, msg *consumer.Message, err error) error // nil: the answer is the Consumer's

	mu         sync.Mutex
	deliveries []consumer.Message // as delivered
	largest    int                // batch
}

// Process implements consumer.Processor.
func (p *tapped) Process(ctx context.Context, msg *consumer.Message) error {
	return p.deliver(ctx, []*consumer.Message{msg}, func(msgs []*consumer.Message) []error {
		return []error{p.Consumer.Process(ctx, msgs[0])}
	})[0]
}

// ProcessBatch implements driver.BatchProcessor.
func (p *tapped) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return p.deliver(ctx, msgs, func(msgs []*consumer.Message) []error { return p.Consumer.ProcessBatch(ctx, msgs) })
}

func (p *tapped) deliver(ctx context.Context, msgs []*consumer.Message,
	process func([]*consumer.Message) []error,
) []error {
	p.mu.Lock()
	for _, m := range msgs {
		p.deliveries = append(p.deliveries, *m)
	}
	p.largest = max(p.largest, len(msgs))
	p.mu.Unlock()

	errs := make([]error, len(msgs))
	var pass []*consumer.Message
	var index []int
	for i, m := range msgs {
		if p.before != nil {
			errs[i] = p.before(ctx, m)
		}
		if errs[i] == nil {
			pass, index = append(pass, m), append(index, i)
		}
	}
	if len(pass) > 0 {
		for j, err := range process(pass) {
			if p.after != nil {
				err = p.after(ctx, pass[j], err)
			}
			errs[index[j]] = err
		}
	}
	return errs
}

// of returns the deliveries of the message with this ID.
func (p *tapped) of(id string) (deliveries []consumer.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.deliveries {
		if m.Headers[idHeader] == id {
			deliveries = append(deliveries, m)
		}
	}
	return deliveries
}

func (p *tapped) count() (deliveries, largestBatch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.deliveries), p.largest
}

// suiteMessage returns a message with the business key id.
func suiteMessage(id, key, payload string) consumer.Message {
	return consumer.Message{OrderingKey: key, Payload: []byte(payload), Headers: map[string]string{idHeader: id}}
}

// suiteMessages returns n messages with IDs 0 to n-1, without ordering keys.
func suiteMessages(n int) (msgs []consumer.Message) {
	for i := range n {
		msgs = append(msgs, suiteMessage(fmt.Sprint(i), "", fmt.Sprint("payload ", i)))
	}
	return msgs
}

// publish repeats Publish until it succeeds.
func (e *subscriberEnv) publish(msgs ...consumer.Message) {
	e.Helper()
	e.eventually(func() error { return e.broker.Publish(e.Context(), msgs...) })
}

// run starts a subscriber.
func (e *subscriberEnv) run(p consumer.Processor, grace time.Duration) *runningSubscriber {
	e.Helper()
	s, err := e.broker.Subscriber(p, grace)
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	r := &runningSubscriber{e: e, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = s.Run(ctx)
	}()
	e.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(subscriberPatience):
			e.Error("Run did not return when its context ended")
		}
	})
	return r
}

type runningSubscriber struct {
	e      *subscriberEnv
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
}

// stop ends Run's context, and fails the case unless Run returns nil.
func (r *runningSubscriber) stop() {
	r.e.Helper()
	r.cancel()
	select {
	case <-r.done:
		if r.err != nil {
			r.e.Errorf("Run = %v when its context ended; want nil", r.err)
		}
	case <-time.After(subscriberPatience):
		r.e.Fatal("Run did not return when its context ended")
	}
}

// runs fails the case if Run has returned.
func (r *runningSubscriber) runs() {
	r.e.Helper()
	select {
	case <-r.done:
		r.e.Errorf("Run = %v before its context ended", r.err)
	default:
	}
}

// consumed waits until every message is acknowledged.
func (e *subscriberEnv) consumed() {
	e.Helper()
	e.eventually(func() error {
		n, err := e.broker.Left(e.Context())
		if err == nil && n != 0 {
			err = fmt.Errorf("%d messages are not acknowledged", n)
		}
		return err
	})
}

// effects fails the case unless each of these messages has exactly one suiteEffect.
func (e *subscriberEnv) effects(ids ...string) {
	e.Helper()
	lost, doubled := 0, 0
	for _, id := range ids {
		switch n := e.db.Count(id); {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
	}
	if lost > 0 || doubled > 0 {
		e.Errorf("of %d effects %d are lost and %d are doubled", len(ids), lost, doubled)
	}
}

// letters returns the dead letters, sorted by business key.
func (e *subscriberEnv) letters() []consumer.DeadLetter {
	e.Helper()
	letters, err := NewStoreOn(e.db).DeadLetters(context.WithoutCancel(e.Context()), consumer.DeadLetterFilter{})
	if err != nil {
		e.Fatal(err)
	}
	slices.SortFunc(letters, func(a, b consumer.DeadLetter) int {
		return slices.Compare([]byte(a.Record.Key.ID), []byte(b.Record.Key.ID))
	})
	return letters
}

// parked fails the case unless these messages, and no others, are dead letters.
func (e *subscriberEnv) parked(ids ...string) {
	e.Helper()
	var got []string
	for _, l := range e.letters() {
		got = append(got, l.Record.Key.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		e.Errorf("parked are %q, want %q", got, ids)
	}
}

// suiteIDs returns the business keys of msgs.
func suiteIDs(msgs []consumer.Message) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.Headers[idHeader])
	}
	return ids
}

// eventually repeats check until it returns nil.
func (e *subscriberEnv) eventually(check func() error) {
	e.Helper()
	deadline := time.Now().Add(subscriberPatience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// tell sends a signal from a handler. It drops the signal if the channel is full, because a broker may deliver more
// often than the case expects.
func tell(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// awaits waits for a signal from a handler.
func (e *subscriberEnv) awaits(what string, signal <-chan struct{}) {
	e.Helper()
	select {
	case <-signal:
	case <-time.After(subscriberPatience):
		e.Fatalf("waited in vain for: %s", what)
	}
}

var errSuiteNotYet = errors.New("not yet")
