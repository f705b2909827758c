//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// -broken selects one of four mistakes that hand-written code makes. They prove that the audit can fail.
//
//	lose        a publisher that reports a message as sent before the broker has confirmed it; every 200th never arrives
//	mark-first  a relay that deletes messages when it leases them, and then publishes them; a crash loses them
//	disorder    a relay that publishes each batch in random order
//	dual-write  a handler that enqueues in a separate transaction; messages of rolled back handlers are published

// breakPublisher returns p, or a faulty publisher if way is about publishers.
func breakPublisher(way string, p outbox.Publisher) outbox.Publisher {
	if way == "lose" {
		return &losing{Publisher: p}
	}
	return p
}

type losing struct {
	outbox.Publisher
	sent atomic.Int64
}

func (l *losing) Publish(ctx context.Context, msgs []outbox.Message) []error {
	kept := slices.DeleteFunc(slices.Clone(msgs), func(outbox.Message) bool { return l.sent.Add(1)%200 == 0 })
	if len(kept) == len(msgs) {
		return l.Publisher.Publish(ctx, msgs)
	}
	if len(kept) == 0 {
		return nil
	}
	for _, err := range l.Publisher.Publish(ctx, kept) {
		if err != nil {
			return slices.Repeat([]error{err}, len(msgs))
		}
	}
	return nil
}

// breakQueue returns q, or a faulty queue if way is about queues.
func breakQueue(way string, q driver.Queue) driver.Queue {
	if way == "mark-first" || way == "disorder" {
		return brokenQueue{q, way}
	}
	return q
}

type brokenQueue struct {
	driver.Queue
	way string
}

func (q brokenQueue) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	if q.way == "mark-first" {
		return marking{s}, nil
	}
	return shuffling{s}, nil
}

// marking settles messages as sent when it leases them.
type marking struct{ driver.Session }

func (m marking) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	leased, err := m.Session.Lease(ctx, want)
	if err != nil || len(leased) == 0 {
		return leased, err
	}
	sent := make([]driver.Outcome, len(leased))
	for i := range leased {
		sent[i] = driver.Outcome{Leased: leased[i], Verdict: driver.Sent}
	}
	return leased, m.Session.Settle(ctx, sent)
}

func (m marking) Settle(context.Context, []driver.Outcome) error { return nil }

// shuffling leases messages in random order.
type shuffling struct{ driver.Session }

func (s shuffling) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	leased, err := s.Session.Lease(ctx, want)
	rand.Shuffle(len(leased), func(i, j int) { leased[i], leased[j] = leased[j], leased[i] })
	return leased, err
}

// breakWriter returns w, or a faulty writer if way is about writers.
func breakWriter(way string, w outbox.Writer[pgx.Tx], pool *pgxpool.Pool) outbox.Writer[pgx.Tx] {
	if way == "dual-write" {
		return dualWriter{w, pool}
	}
	return w
}

type dualWriter struct {
	outbox.Writer[pgx.Tx]
	pool *pgxpool.Pool
}

func (d dualWriter) Enqueue(ctx context.Context, _ pgx.Tx, msgs ...outbox.Message) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return d.Writer.Enqueue(ctx, tx, msgs...) })
}
