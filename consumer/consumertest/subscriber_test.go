package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
)

// TestTheSuiteOnAQueue runs the suite against a queue in memory that works like SQS and RabbitMQ: messages are leased,
// acknowledged one by one, and counted.
func TestTheSuiteOnAQueue(t *testing.T) {
	features := consumertest.Features{
		Delay: true, CountsAttempts: true,
		DoesNotApply: map[string]string{"the broker restarts": "it lives in this process"},
	}
	consumertest.TestSubscriber(t, consumertest.SubscriberHarness{
		New: func(*testing.T) consumertest.Broker { return &fakeQueue{} }, Features: features, Run: synctest.Test,
	})
}

type fakeQueue struct {
	trace *driver.SourceTrace
	mu    sync.Mutex
	sent  int
	queue []*queued
}

type queued struct {
	msg    consumer.Message
	due    time.Time // not before
	holder int       // number of its lease; 0: none
	lost   func()    // ends the handler that has the lease
	leases int
	counts int // deliveries that count
}

func (q *fakeQueue) Publish(_ context.Context, msgs ...consumer.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range msgs {
		q.sent++
		m.Headers = maps.Clone(m.Headers)
		m.Position, m.Topic = fmt.Sprint("fake/", q.sent), "fake"
		q.queue = append(q.queue, &queued{msg: m})
	}
	return nil
}

func (q *fakeQueue) Trace(trace *driver.SourceTrace) { q.trace = trace }

func (q *fakeQueue) Left(context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue), nil
}

func (q *fakeQueue) Revoke(ctx context.Context) error {
	q.mu.Lock()
	var lost []*queued
	for _, m := range q.queue {
		if m.holder != 0 {
			lost = append(lost, m)
			m.holder = 0
			m.lost()
		}
	}
	q.mu.Unlock()
	for _, m := range lost {
		q.report(ctx, driver.SourceEvent{Message: &m.msg, Messages: 1, Err: errors.New("revoked")})
	}
	return nil
}

// report calls the hook Lost if e has a reason, and otherwise Acked.
func (q *fakeQueue) report(ctx context.Context, e driver.SourceEvent) {
	e.System, e.Source = "fake", "fake"
	switch {
	case q.trace == nil:
	case e.Err != nil:
		q.trace.Lost(ctx, e)
	default:
		q.trace.Acked(ctx, e)
	}
}

// leased is a delivery: a copy of the message as it was when leased, since others may lease the message once this lease
// is lost.
type leased struct {
	from   *queued
	number int
	msg    consumer.Message
	ctx    context.Context // ends when the lease is lost
}

// lease hands out the next message that is due; nil: none is. Its handlers have contexts of work.
func (q *fakeQueue) lease(work context.Context) *leased {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.queue {
		if m.holder == 0 && !time.Now().Before(m.due) {
			m.leases++
			m.counts++
			m.holder = m.leases
			delivery := &leased{from: m, number: m.holder, msg: m.msg}
			delivery.msg.Attempt = m.counts
			delivery.ctx, m.lost = context.WithCancel(work)
			return delivery
		}
	}
	return nil
}

// answer ends a lease, unless it was lost.
func (q *fakeQueue) answer(delivery *leased, err error) {
	if q.settle(delivery, err) && err == nil {
		q.report(delivery.ctx, driver.SourceEvent{Message: &delivery.msg})
	}
}

// settle reports whether the lease was not lost.
func (q *fakeQueue) settle(delivery *leased, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := delivery.from
	if m.holder != delivery.number {
		return false
	}
	m.holder = 0
	m.lost()
	var retry *consumer.RetryError
	switch {
	case err == nil:
		q.queue = slices.DeleteFunc(q.queue, func(other *queued) bool { return other == m })
	case errors.As(err, &retry):
		m.due = time.Now().Add(retry.After)
		if retry.Held {
			m.counts--
		}
	}
	return true
}

func (q *fakeQueue) Subscriber(p consumer.Processor, grace time.Duration) (consumertest.Subscriber, error) {
	return &fakeSubscriber{q, p, grace}, nil
}

type fakeSubscriber struct {
	queue *fakeQueue
	p     consumer.Processor
	grace time.Duration
}

// Run delivers to three handlers, in batches of one: Process sleeps between attempts and would keep the lease.
func (s *fakeSubscriber) Run(ctx context.Context) error {
	if starter, ok := s.p.(driver.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			return err
		}
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(s.grace, cancel) })
	defer stop()
	var handlers sync.WaitGroup
	for range 3 {
		handlers.Go(func() {
			for ctx.Err() == nil {
				delivery := s.queue.lease(work)
				if delivery == nil {
					<-time.After(5 * time.Millisecond)
					continue
				}
				err := deliver.Call(delivery.ctx, s.p, []*consumer.Message{&delivery.msg})[0]
				s.queue.answer(delivery, err)
				if _, again := errors.AsType[*consumer.RetryError](err); err != nil && !again && work.Err() == nil {
					fail(err)
				}
			}
		})
	}
	handlers.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
