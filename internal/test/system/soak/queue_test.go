package soak

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// queue is a broker in memory that delivers each message at least once, and some of them several times concurrently.
type queue struct {
	mu      sync.Mutex
	waiting []*delivery
	open    int // deliveries that are not yet acknowledged
	counts  struct{ delivered, redelivered int }
}

type delivery struct {
	msg     consumer.Message
	attempt int
	due     time.Time
}

// newQueue shuffles slightly, so that copies of a message often meet on two nodes.
func newQueue(rng *rand.Rand, msgs []consumer.Message) *queue {
	q := &queue{}
	for _, m := range msgs {
		for range 1 + rng.IntN(2) + rng.IntN(2)*rng.IntN(2) {
			q.waiting = append(q.waiting, &delivery{msg: m, attempt: 1})
		}
	}
	for i := range q.waiting {
		j := i + rng.IntN(min(200, len(q.waiting)-i))
		q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i]
	}
	q.open = len(q.waiting)
	return q
}

// take returns up to n deliveries that are due. done is true when all deliveries are acknowledged.
func (q *queue) take(n int) (batch []*delivery, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	rest := q.waiting[:0]
	for _, d := range q.waiting {
		if len(batch) < n && !d.due.After(now) {
			batch = append(batch, d)
		} else {
			rest = append(rest, d)
		}
	}
	q.waiting = rest
	q.counts.delivered += len(batch)
	return batch, q.open == 0
}

// answer acknowledges a delivery or requeues it. An error other than RetryError breaks the promise of a Processor whose
// store keeps dead letters.
func (q *queue) answer(d *delivery, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.open--
		return nil
	}
	retry, ok := errors.AsType[*consumer.RetryError](err)
	if !ok {
		q.open--
		return err
	}
	if !retry.Held {
		d.attempt++
	}
	if *logged {
		slog.Info("delivered again", "id", d.msg.ID, "attempt", d.attempt, "uncounted", retry.Held, "after",
			retry.After, "error", err)
	}
	d.due = time.Now().Add(min(retry.After, time.Second))
	q.waiting = append(q.waiting, d)
	q.counts.redelivered++
	return nil
}

// work is one worker. It ends when every delivery is acknowledged, or when ctx ends.
func (q *queue) work(ctx context.Context, t *testing.T, p driver.BatchProcessor, batch int) {
	for ctx.Err() == nil {
		deliveries, done := q.take(batch)
		if done {
			return
		}
		if len(deliveries) == 0 {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		msgs := make([]*consumer.Message, len(deliveries))
		for i, d := range deliveries {
			m := d.msg
			m.Attempt = d.attempt
			msgs[i] = &m
		}
		for i, err := range p.ProcessBatch(ctx, msgs) {
			if err := q.answer(deliveries[i], err); err != nil {
				t.Errorf("message %s was rejected: %v", msgs[i].ID, err)
			}
		}
	}
}
