package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// The parts of the time from COMMIT until the broker has confirmed a message, and the least that a part can take.
const (
	pathWoken   = "COMMIT has returned: until the relay polls"
	pathPolled  = "the poll, one statement"
	pathHanded  = "until the publisher is called"
	pathSent    = "the publisher, until Kafka has confirmed"
	pathAll     = "together"
	pathTrip    = "least: the statement `SELECT 1` on a connection of its own"
	pathProduce = "least: sarama's SyncProducer"
)

// path measures these parts for messages of the relay in this process, at a hundred transactions a second. After each
// message it measures the least of two parts, so that all have the same conditions.
func (b *bench) path(ctx context.Context) error {
	b.progress("path")
	names := []string{pathWoken, pathPolled, pathHanded, pathSent, pathAll, pathTrip, pathProduce}
	medians, worst := series{}, series{}
	var ways []way
	for _, name := range names {
		ways = append(ways, way{name: name})
	}
	for range b.size.backlogRounds {
		took := map[string][]time.Duration{}
		p := &place{tuned: true, seen: newConfirmed(0)}
		if err := b.at(ctx, p, func(ctx context.Context, p *place) error { return p.follow(ctx, 500/b.size.backlog, took) }); err != nil {
			return err
		}
		for _, name := range names {
			medians[name] = append(medians[name], percentile(took[name], 50))
			worst[name] = append(worst[name], percentile(took[name], 99))
		}
	}
	t := b.report.table("path", "ms")
	t.add("p50", ways, medians)
	t.add("p99", ways, worst)
	return nil
}

// follow publishes n messages, one at a time, and adds how long each part took.
func (p *place) follow(ctx context.Context, n int, took map[string][]time.Duration) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	conn, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	f := &followed{to: publisher, confirmed: make(chan struct{}, 1)}
	r, err := relay.New(relay.Config{Queue: followedQueue{p.store, f}, Publisher: f})
	if err != nil {
		return err
	}
	t := &txonce{place: p, relay: r}
	least := func(name string, measured bool, do func() error) error {
		began := time.Now()
		err := do()
		if measured {
			took[name] = append(took[name], time.Since(began))
		}
		return err
	}
	return while(ctx, t.Relay, func(ctx context.Context) error {
		const warmUp = 30
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := range warmUp + n {
			<-tick.C
			id := fmt.Sprint(i)
			if err := t.Tx(ctx, id); err != nil {
				return err
			}
			committed := time.Now()
			select {
			case <-f.confirmed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if i >= warmUp {
				f.add(took, committed)
			}
			<-tick.C
			if err := least(pathTrip, i >= warmUp,
				func() error { return conn.QueryRow(ctx, `SELECT 1`).Scan(new(int)) }); err != nil {
				return err
			}
			<-tick.C
			err := least(pathProduce, i >= warmUp, func() error {
				_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: p.topic, Key: sarama.StringEncoder(key(id)), Value: sarama.ByteEncoder(payload)})
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// followed notes the times of the message that is under way.
type followed struct {
	to        outbox.Publisher
	confirmed chan struct{}

	mu                                    sync.Mutex
	polls, polled, publishes, publishedAt time.Time
}

// add adds the parts of a message.
func (f *followed) add(took map[string][]time.Duration, committed time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, part := range []struct {
		name     string
		from, to time.Time
	}{
		{pathWoken, committed, f.polls},
		{pathPolled, f.polls, f.polled},
		{pathHanded, f.polled, f.publishes},
		{pathSent, f.publishes, f.publishedAt},
		{pathAll, committed, f.publishedAt},
	} {
		took[part.name] = append(took[part.name], part.to.Sub(part.from))
	}
}

// Publish implements outbox.Publisher.
func (f *followed) Publish(ctx context.Context, msgs []outbox.Message) []error {
	began := time.Now()
	errs := f.to.Publish(ctx, msgs)
	f.mu.Lock()
	f.publishes, f.publishedAt = began, time.Now()
	f.mu.Unlock()
	if errors.Join(errs...) == nil {
		f.confirmed <- struct{}{}
	}
	return errs
}

// followedQueue notes the times of the polls that find messages.
type followedQueue struct {
	driver.Queue
	f *followed
}

func (q followedQueue) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return followedSession{s, s.(driver.Waker), s.(driver.Maintainer), q.f}, nil
}

type followedSession struct {
	driver.Session
	driver.Waker
	driver.Maintainer
	f *followed
}

func (s followedSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	began := time.Now()
	msgs, err := s.Session.Lease(ctx, want)
	if len(msgs) > 0 {
		s.f.mu.Lock()
		s.f.polls, s.f.polled = began, time.Now()
		s.f.mu.Unlock()
	}
	return msgs, err
}
