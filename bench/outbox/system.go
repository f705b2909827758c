package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// system publishes the messages of transactions to the broker.
type system interface {
	// Fill commits the messages from, ..., to-1 as fast as it can.
	Fill(ctx context.Context, from, to int) error
	// Tx runs one transaction that writes an effect and the message with this id.
	Tx(ctx context.Context, id string) error
	// Relay publishes committed messages until ctx ends.
	Relay(ctx context.Context) error
}

// kind creates a system in an empty schema.
type kind struct {
	name  string
	drain int // size of a backlog that takes a few seconds; 0: the system keeps no backlog
	slow  int // the same for acknowledgements that take 2 ms
	setup func(context.Context, *world) (system, error)
}

// world is the environment of a system.
type world struct {
	pool   *pgxpool.Pool
	db     *sql.DB // the same database
	kafka  []string
	topic  string
	sarama *sarama.Config
	delay  time.Duration // additional time of each acknowledgement
	tuned  bool          // poll as often as is sensible instead of the default
	seen   *confirmed
}

// payload has 300 bytes.
var payload = fmt.Appendf(nil, `{"padding": "%0285d"}`, 0)

const insertEffect = `INSERT INTO effects (id, amount) VALUES ($1, 100)`

// effect is what the transaction does besides the message.
func effect(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, insertEffect, id)
	return err
}

// acknowledge delays the broker's answer by w.delay.
func (w *world) acknowledge(ctx context.Context, ids ...string) {
	if w.delay > 0 {
		select {
		case <-time.After(w.delay):
		case <-ctx.Done():
			return
		}
	}
	w.seen.add(ids...)
}

// confirmed records when the broker confirmed which message.
type confirmed struct {
	mu    sync.Mutex
	at    map[string]time.Time
	gone  int // number of forgotten messages
	first time.Time
	last  time.Time
	want  int
	done  chan struct{}
}

func newConfirmed(want int) *confirmed {
	return &confirmed{at: make(map[string]time.Time, min(want, 1<<17)), want: want, done: make(chan struct{})}
}

func (c *confirmed) add(ids ...string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if _, repeat := c.at[id]; repeat {
			continue
		}
		if len(c.at) == 0 {
			c.first = now
		}
		c.at[id], c.last = now, now
		if len(c.at) == c.want {
			close(c.done)
		}
	}
}

// forget removes old entries, because a very large map would slow down the measurement.
func (c *confirmed) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone += len(c.at)
	c.at = map[string]time.Time{}
}

func (c *confirmed) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%d of %d confirmed: %w", len(c.at), c.want, context.Cause(ctx))
	}
}

// reach waits until n messages are confirmed.
func (c *confirmed) reach(ctx context.Context, n int) error {
	reached := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.gone+len(c.at) >= n
	}
	for !reached() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
