package watermilltx_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// TestPubSub is watermill's own suite, on a Pub/Sub made of this package: its publisher writes to an outbox, a relay
// takes that through a Publisher to a broker of watermill's, and its subscriber is that broker's with a Middleware
// before each reader. The suite's own reasons for leaving out a case are in its output: gochannel has no groups and no
// order; nothing is restarted.
func TestPubSub(t *testing.T) {
	t.Run("gochannel", func(t *testing.T) {
		tests.TestPubSub(t, tests.Features{
			RequireSingleInstance: true, ExactlyOnceDelivery: true, ForceShort: true,
		}, func(t *testing.T) (message.Publisher, message.Subscriber) {
			inner := gochannel.NewGoChannel(gochannel.Config{Persistent: true, OutputChannelBuffer: 10_000},
				watermill.NopLogger{})
			memory := outboxtest.NewMemory()
			p := &enqueuing{relayed: relayTo(t, memory, inner), enqueue: func(ctx context.Context, msgs []outbox.Message) error {
				return memory.InTx(ctx, func(tx *outboxtest.Tx) error { return memory.Enqueue(ctx, tx, msgs...) })
			}}
			db := deduptest.NewDatabase()
			return p, &onceSubscriber{Subscriber: inner, wrap: func(string) wrapper {
				// Each subscription of a gochannel gets every message, so each is a consumer of its own.
				return once(t, "reader-"+newUUID(), consumertest.NewStoreOn(db), false)
			}}
		}, nil)
	})
	t.Run("watermill-sql", func(t *testing.T) {
		if testing.Short() {
			t.Log("-short: there is no watermill-sql without a server")
			return
		}
		b := newQuietPostgres(t)
		inner, err := watermillsql.NewPublisher(b.db,
			watermillsql.PublisherConfig{SchemaAdapter: schemaAdapter(), AutoInitializeSchema: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		relayed := relayTo(t, b.Store, inner)
		group := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
			sub, err := watermillsql.NewSubscriber(b.db, watermillsql.SubscriberConfig{
				ConsumerGroup: group, PollInterval: 10 * time.Millisecond, ResendInterval: 5 * time.Millisecond,
				InitializeSchema: true,
				SchemaAdapter:    schemaAdapter(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := &enqueuing{relayed: relayed, enqueue: func(ctx context.Context, msgs []outbox.Message) error {
				return b.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error { return b.Enqueue(ctx, tx, msgs...) })
			}}
			return p, &onceSubscriber{
				Subscriber: sub,
				wrap: func(topic string) wrapper {
					// the suite publishes the same UUIDs in several topics
					return once(t, group+" of "+topic, dedup.Store[*sql.Tx](b.node()), true)
				},
				ready: b.shown,
			}
		}
		tests.TestPubSub(t, tests.Features{
			ConsumerGroups: true, ExactlyOnceDelivery: true, GuaranteedOrder: true,
			GuaranteedOrderWithSingleSubscriber: true, Persistent: true, ForceShort: true,
			// PostgreSQL cuts the names of a table's sequence and indexes, and does not like to make two of one name at
			// once.
			GenerateTopicFunc: func(c tests.TestContext) string { return "t-" + string(c.TestID)[:13] },
		}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "default") }, group)
	})
}

// relayed records the messages that a relay has published.
type relayed struct {
	message.Publisher
	done sync.Map // topic and UUID
}

func (r *relayed) Publish(topic string, msgs ...*message.Message) error {
	err := r.Publisher.Publish(topic, msgs...)
	for _, m := range msgs {
		if err == nil {
			r.done.Store(topic+"/"+m.UUID, true)
		}
	}
	return err
}

// await returns when all are published: watermill-sql hides a message from readers as long as any transaction that
// began before it was published is open, and the suite's readers keep theirs open until they get around to reading.
func (r *relayed) await(ctx context.Context, msgs []outbox.Message) error {
	for _, m := range msgs {
		for {
			if _, done := r.done.Load(m.Topic + "/" + m.ID); done {
				break
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// relayTo runs a relay to inner until the test ends.
func relayTo(t *testing.T, queue driver.Queue, inner message.Publisher) *relayed {
	t.Helper()
	to := &relayed{Publisher: inner}
	publisher := newPublisher(t, watermilltx.PublisherConfig{
		// watermill's suite compares UUIDs
		Publisher: to, Confirms: true, UUID: func(m outbox.Message) string { return m.ID },
	})
	r, err := relay.New(relay.Config{
		Queue: queue, Publisher: publisher, PollMax: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return to
}

// enqueuing is a watermill publisher that writes to an outbox.
type enqueuing struct {
	relayed *relayed
	enqueue func(context.Context, []outbox.Message) error
	closed  atomic.Bool
}

// Publish implements message.Publisher. One key for a topic keeps its order.
func (p *enqueuing) Publish(topic string, msgs ...*message.Message) error {
	if p.closed.Load() {
		return errors.New("closed")
	}
	var out []outbox.Message
	for _, m := range msgs {
		out = append(out, outbox.Message{
			ID: m.UUID, Topic: topic, OrderingKey: topic, Payload: m.Payload,
			Headers: m.Metadata,
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.enqueue(ctx, out); err != nil {
		return err
	}
	return p.relayed.await(ctx, out)
}

// Close implements message.Publisher.
func (p *enqueuing) Close() error {
	p.closed.Store(true)
	return nil
}

type wrapper func(message.HandlerFunc) message.HandlerFunc

func once[TTx any](t *testing.T, name string, store dedup.Store[TTx], join bool) wrapper {
	m, err := watermilltx.New(watermilltx.Config[TTx]{
		Name: name, Store: store, Key: consumer.HeaderKey(outbox.HeaderID), MaxWait: -1, MaxAttempts: 1000, Join: join,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.Middleware
}

// onceSubscriber puts a Middleware before each reader: what the reader acks is committed.
type onceSubscriber struct {
	message.Subscriber
	wrap    func(topic string) wrapper
	ready   func(ctx context.Context, topic string) error // nil: at once
	readers sync.WaitGroup

	mu      sync.Mutex
	cancels []context.CancelFunc
}

// SubscribeInitialize implements message.SubscribeInitializer.
func (s *onceSubscriber) SubscribeInitialize(topic string) error {
	if init, ok := s.Subscriber.(message.SubscribeInitializer); ok {
		return init.SubscribeInitialize(topic)
	}
	return nil
}

// Subscribe implements message.Subscriber.
func (s *onceSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if s.ready != nil {
		if err := s.ready(ctx, topic); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.cancels = append(s.cancels, cancel)
	s.mu.Unlock()
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	handle := s.wrap(topic)(func(msg *message.Message) ([]*message.Message, error) {
		select {
		case out <- msg:
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}
		select {
		case <-msg.Acked():
			return nil, nil
		case <-msg.Nacked():
			return nil, nil // the Middleware sees it
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}
	})
	s.readers.Go(func() {
		defer close(out)
		for raw := range in {
			if _, err := handle(raw); err != nil {
				raw.Nack()
			} else {
				raw.Ack()
			}
		}
	})
	return out, nil
}

// Close implements message.Subscriber. As a Router does, it ends the subscriptions' context. Without that, Close of a
// watermill-sql subscriber waits for a row that another subscriber of its group has locked, and that subscriber, when
// its messages are not read any more, waits for AckDeadline.
func (s *onceSubscriber) Close() error {
	s.mu.Lock() // the suite closes twice at a time, which is a race in watermill-sql's Close
	defer s.mu.Unlock()
	for _, cancel := range s.cancels {
		cancel()
	}
	err := s.Subscriber.Close()
	s.readers.Wait()
	return err
}
