//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

const (
	relays = 2
	// how long nothing may change at the end before the run is given up; also limits setup, audit and cleanup
	patience = 2 * time.Minute
	settling = 3 * time.Second // how long nothing may change after the outbox says that it is empty
)

// run makes the schema and topic, enqueues, runs the relays, applies the faults and audits the result.
func run(ctx context.Context, o options, say *progress) (found *figures, err error) {
	g, err := openTestbed(ctx, o, fmt.Sprintf("txonce_relaychaos_%08x", rand.Uint32()))
	if err != nil {
		return nil, err
	}
	defer cleanUp(&err, g.Close)
	say.print("seed %d, %s: %d messages over %d keys, %d a second; %d kills, %d pauses, a lease of %v",
		o.seed, g.name, o.messages, o.keys, o.rate, o.kills, o.pauses, o.lease)
	store, err := pgxstore.New(pgxstore.Config{Pool: g.pool})
	if err != nil {
		return nil, err
	}
	out, err := openReader(g.client, g.topic)
	if err != nil {
		return nil, err
	}
	defer out.Close()

	s := &supervisor{options: o, testbed: g, plan: newPlan(o), store: store, reader: out, say: say, start: time.Now()}
	failed := s.work(ctx)
	if ctx.Err() != nil {
		return nil, errors.New("interrupted; what it made is removed")
	}
	found, err = s.audit(ctx)
	return found, errors.Join(failed, err)
}

// supervisor runs the handlers that enqueue and the keepers of the relays.
type supervisor struct {
	options
	testbed *testbed
	plan    *plan
	store   *pgxstore.Store
	reader  *reader
	say     *progress
	start   time.Time

	enqueuer *enqueuer
	enqueued chan struct{} // closed when every command is handled
	keepers  []*keeper
	took     time.Duration
}

// work returns when everything that was committed is published and every fault is applied, or nothing changes any more.
// All relays have ended by then.
func (s *supervisor) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	faults := newFaultQueue(s.plan.faults, s.start)
	var keeping sync.WaitGroup
	s.enqueued = make(chan struct{})
	s.enqueuer = &enqueuer{plan: s.plan, topic: s.testbed.topic, faults: faults, relayed: s.relayed, writer: s.writer()}
	stopping := make([]error, relays) // each relay must end without an error
	for i := range relays {
		k := &keeper{
			name: fmt.Sprintf("relay-%d", i+1), testbed: s.testbed, faults: faults, finished: s.finished, say: s.say,
			verbose: s.verbose,
			settings: settings{
				Database: s.testbed.dsn, Kafka: s.kafka, Lease: s.lease, Batch: s.batch,
				Broken: s.broken,
			},
		}
		s.keepers = append(s.keepers, k)
		keeping.Go(func() {
			stopping[i] = k.run(ctx)
			cancel(stopping[i])
		})
	}
	keeping.Go(func() {
		defer close(s.enqueued)
		if err := s.enqueuer.run(ctx, s.store, s.start); err != nil {
			cancel(fmt.Errorf("enqueue: %w", err))
		}
	})
	s.watch(ctx, faults)
	s.took = time.Since(s.start)
	cancel(errEnough)
	keeping.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return errors.Join(stopping...)
}

var errEnough = errors.New("everything is done")

// watch returns when there is nothing more to wait for.
func (s *supervisor) watch(ctx context.Context, faults *faultQueue) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	moved, before := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		distinct, records := s.reader.count()
		committed := int(s.enqueuer.committed.Load())
		s.say.live(fmt.Sprintf("%d of %d committed, %d published, %d repeats", committed, s.messages, distinct,
			records-distinct))
		select {
		case <-s.enqueued:
		default:
			continue
		}
		if records != before || !faults.empty() {
			moved, before = time.Now(), records
			continue
		}
		pending, err := s.testbed.pending(ctx)
		idle := time.Since(moved)
		if err == nil && pending == 0 && (distinct >= committed || idle > settling) || idle > patience {
			return
		}
	}
}

// relayed reports whether everything committed so far was published, or the database has no messages left, which is
// different if messages are lost. It also returns true if nothing has changed for too long.
func (s *supervisor) relayed(ctx context.Context) bool {
	distinct, _ := s.reader.count()
	if distinct >= int(s.enqueuer.committed.Load()) || s.reader.idle() > patience {
		return true
	}
	pending, err := s.testbed.pending(ctx)
	return err == nil && pending == 0
}

// finished reports whether nothing more will be published.
func (s *supervisor) finished(ctx context.Context) bool {
	select {
	case <-s.enqueued:
		return s.relayed(ctx)
	default:
		return false
	}
}

// writer returns what handlers enqueue with.
func (s *supervisor) writer() outbox.Writer[pgx.Tx] {
	return breakWriter(s.broken, s.store, s.testbed.pool)
}

// audit compares the topic with the ledger and returns the figures.
func (s *supervisor) audit(ctx context.Context) (*figures, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	records, err := s.reader.all(ctx)
	if err != nil {
		return nil, err
	}
	ledger, err := readLedger(ctx, s.testbed.pool)
	if err != nil {
		return nil, err
	}
	pending, err := s.testbed.pending(ctx)
	if err != nil {
		return nil, err
	}
	a := newAudit(ledger)
	for _, p := range records {
		a.publication(p)
	}
	var faults tally
	for _, k := range s.keepers {
		faults.add(k.applied)
	}
	return newFigures(s.options, s.plan, a.close(), faults, s.enqueuer.rolled.Load(), pending, s.took), nil
}

// cleanUp calls remove, even after ctx has ended, with a time limit.
func cleanUp(err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if failed := remove(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("clean up: %w", failed))
	}
}
