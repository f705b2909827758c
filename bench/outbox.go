package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/kafka"
)

// outboxConns is how many connections the transactions of an outbox have. Its relay has as many.
const outboxConns = 8

// system publishes the messages of transactions to Kafka.
type system interface {
	// Fill commits the messages from, ..., to-1 as fast as it can.
	Fill(ctx context.Context, from, to int) error
	// Tx runs one transaction that writes an effect and the message with this id.
	Tx(ctx context.Context, id string) error
	// Relay publishes committed messages until ctx ends.
	Relay(ctx context.Context) error
}

// outboxKind creates a system in an empty schema.
type outboxKind struct {
	name  string
	rows  string // the table of its messages
	drain int    // a backlog that takes a few seconds; 0: the system keeps no backlog
	slow  int    // the same for acknowledgements that take 2 ms
	setup func(context.Context, *place) (system, error)
}

var (
	outboxKinds = []outboxKind{
		{"txonce", "outbox_messages", 100_000, 100_000, newTxonce(false)},
		{"watermill-sql v3 forwarder", "watermill_events", 8_000, 800, newForwarding},
		{"River, a job per message", "river_job", 10_000, 10_000, newJobs},
		{name: "least", rows: "least", setup: newLeast},
	}
	elsewhere = outboxKind{name: "txonce, relay elsewhere", setup: newTxonce(true)}
)

// place is the environment of a system.
type place struct {
	*world
	db     *sql.DB // the same database
	topic  string
	sarama *sarama.Config
	delay  time.Duration // additional time of each acknowledgement
	tuned  bool          // poll as often as is sensible instead of the default
	seen   *confirmed
}

// at runs fn in a new place, with a topic of its own.
func (b *bench) at(ctx context.Context, p *place, fn func(context.Context, *place) error) error {
	return b.server.inWorld(ctx, 2*outboxConns, false, func(ctx context.Context, w *world) (err error) {
		p.world, p.topic, p.sarama = w, w.schema, kafka.NewConfig()
		p.sarama.Producer.RequiredAcks, p.sarama.Producer.Idempotent, p.sarama.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
		p.sarama.Producer.Return.Successes, p.sarama.Producer.Return.Errors = true, true
		admin, err := sarama.NewClusterAdmin(kafkaAddresses(), kafka.NewConfig())
		if err != nil {
			return fmt.Errorf("TXONCE_KAFKA: %w", err)
		}
		defer func() { err = errors.Join(err, admin.DeleteTopic(p.topic), admin.Close()) }()
		if err := admin.CreateTopic(p.topic, &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1},
			false); err != nil {
			return err
		}
		p.db = stdlib.OpenDBFromPool(w.pool)
		defer p.db.Close()
		return fn(ctx, p)
	})
}

// in runs fn with a system in a place of its own.
func (b *bench) in(ctx context.Context, k outboxKind, p *place, fn func(context.Context, system) error) error {
	err := b.at(ctx, p, func(ctx context.Context, p *place) error {
		s, err := k.setup(ctx, p)
		if err != nil {
			return err
		}
		return fn(ctx, s)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	return nil
}

func (p *place) client() (sarama.Client, error) { return sarama.NewClient(kafkaAddresses(), p.sarama) }

// payload has 300 bytes.
var payload = fmt.Appendf(nil, `{"padding": "%0285d"}`, 0)

// acknowledge delays the broker's answer.
func (p *place) acknowledge(ctx context.Context, ids ...string) {
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-ctx.Done():
			return
		}
	}
	p.seen.add(ids...)
}

// confirmed records when the broker confirmed which message.
type confirmed struct {
	*tally
	mu sync.Mutex
	at map[string]time.Time
}

func newConfirmed(want int) *confirmed {
	return &confirmed{tally: newTally(want), at: make(map[string]time.Time, want)}
}

func (c *confirmed) add(ids ...string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	news := 0
	for _, id := range ids {
		if _, repeat := c.at[id]; !repeat {
			c.at[id] = now
			news++
		}
	}
	c.tally.add(news)
}

// reset forgets everything and waits for more messages.
func (c *confirmed) reset(want int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.at)
	c.tally.reset(want)
}
