package watermilltx_test

import (
	"context"
	"database/sql"
	"fmt"
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
	"github.com/txonce/txonce/outbox"
)

// TestPubSub is watermill's own suite, on a Pub/Sub made of this package: its publisher writes to an outbox, a relay takes
// that through a Publisher to a broker of watermill's, and its subscriber is that broker's with a Middleware before each reader.
func TestPubSub(t *testing.T) {
	t.Run("gochannel", func(t *testing.T) {
		tests.TestPubSub(t, tests.Features{
			RequireSingleInstance: true, ExactlyOnceDelivery: true, ForceShort: true,
		}, func(t *testing.T) (message.Publisher, message.Subscriber) {
			b := newSQLite(t) // of its own, as its relay publishes to this gochannel
			inner := gochannel.NewGoChannel(gochannel.Config{Persistent: true, OutputChannelBuffer: 10_000}, watermill.NopLogger{})
			p := b.through(t, inner)
			// Each subscription of a gochannel gets every message: each is a consumer of its own.
			return p, &onceSubscriber{t: t, b: b, Subscriber: inner, name: func(string) string { return "reader-" + newUUID() }}
		}, nil)
	})
	t.Run("watermill-sql", func(t *testing.T) {
		if testing.Short() {
			t.Log("-short: there is no watermill-sql without a server")
			return
		}
		b := newPostgres(t)
		inner, err := watermillsql.NewPublisher(b.db, watermillsql.PublisherConfig{SchemaAdapter: schemaAdapter(), AutoInitializeSchema: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.through(t, inner) // one relay for all, as they share the database
		group := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
			sub, err := watermillsql.NewSubscriber(b.db, watermillsql.SubscriberConfig{
				ConsumerGroup: group, PollInterval: 10 * time.Millisecond, ResendInterval: 5 * time.Millisecond, InitializeSchema: true,
				SchemaAdapter: schemaAdapter(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return &enqueuing{base: b}, &onceSubscriber{t: t, b: b, Subscriber: sub, join: true, name: func(topic string) string { return group + " of " + topic }}
		}
		tests.TestPubSub(t, tests.Features{
			ConsumerGroups: true, ExactlyOnceDelivery: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true, ForceShort: true,
			// PostgreSQL cuts the names of a table's sequence and indexes, and does not like to make two of one name at once.
			GenerateTopicFunc: func(c tests.TestContext) string { return "t-" + string(c.TestID)[:13] },
		}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "default") }, group)
	})
}

// enqueuing is a watermill publisher that writes to an outbox.
type enqueuing struct {
	*base
	closed atomic.Bool
}

// through starts a relay to inner.
func (b *base) through(t *testing.T, inner message.Publisher) *enqueuing {
	t.Helper()
	store := b.node()
	publisher := newPublisher(t, watermilltx.PublisherConfig{Publisher: inner, Allow: []watermilltx.Allowance{watermilltx.AllowInMemory}})
	relay, err := outbox.NewRelay(outbox.Config{Queue: store, Publisher: publisher, PollMax: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &enqueuing{base: b}
}

// Publish implements message.Publisher. One key for a topic keeps its order.
func (p *enqueuing) Publish(topic string, msgs ...*message.Message) error {
	if p.closed.Load() {
		return fmt.Errorf("closed")
	}
	var out []outbox.Message
	for _, m := range msgs {
		out = append(out, outbox.Message{ID: m.UUID, Topic: topic, Key: topic, Payload: m.Payload, Headers: m.Metadata})
	}
	tx, err := p.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := p.Enqueue(context.Background(), tx, out...); err != nil {
		return err
	}
	return tx.Commit()
}

// Close implements message.Publisher.
func (p *enqueuing) Close() error {
	p.closed.Store(true)
	return nil
}

// onceSubscriber puts a Middleware before each reader: what the reader acks is committed.
type onceSubscriber struct {
	message.Subscriber
	t    *testing.T
	b    *base
	join bool
	name func(topic string) string // of the consumer: the suite publishes the same UUIDs in several topics

	readers sync.WaitGroup
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
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	cfg := watermilltx.Config[*sql.Tx]{
		Name: s.name(topic), Store: s.b.node(), Key: consumer.HeaderKey(outbox.HeaderID), MaxWait: -1, MaxAttempts: 1000, Join: s.join,
		Logger: slog.New(slog.DiscardHandler),
	}
	once, err := watermilltx.New(cfg)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	handle := once.Middleware(func(msg *message.Message) ([]*message.Message, error) {
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

// Close implements message.Subscriber.
func (s *onceSubscriber) Close() error {
	err := s.Subscriber.Close()
	s.readers.Wait()
	return err
}
