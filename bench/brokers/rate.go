package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
)

const (
	concurrency = 4 // concurrent batches
	maxBatch    = 100
	patience    = 2 * time.Minute
)

// A kind is a type of broker.
type kind struct {
	name     string
	messages int
	open     func(ctx context.Context, name string) (broker, error)
}

// broker is the queue or topic of one measurement.
type broker interface {
	fill(ctx context.Context, n int) error
	subscriber(p consumer.Processor) (interface{ Run(context.Context) error }, error)
	close(ctx context.Context) error
}

// rate returns how many messages of a backlog are handled per second, from the first to the last.
func rate(ctx context.Context, k kind, newProcessor func(*pgxpool.Pool) (processor, error)) (perSecond float64, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, patience, errors.New("out of patience"))
	defer stop()
	name := fmt.Sprintf("bench_%x", time.Now().UnixNano())
	pool, drop, err := openPostgres(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	b, err := k.open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	if err := b.fill(ctx, k.messages); err != nil {
		return 0, fmt.Errorf("fill: %w", err)
	}
	p, err := newProcessor(pool)
	if err != nil {
		return 0, err
	}
	counting := &counting{processor: p, want: k.messages, done: make(chan struct{})}
	s, err := b.subscriber(counting)
	if err != nil {
		return 0, err
	}
	running, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(running) }()
	select {
	case <-counting.done:
	case err = <-ran:
		ran <- err
		err = fmt.Errorf("it ended by itself: %w", err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	end()
	if err := errors.Join(err, <-ran); err != nil {
		return 0, err
	}
	var effects int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&effects); err != nil || effects < k.messages {
		return 0, fmt.Errorf("%d effects of %d messages: %w", effects, k.messages, err)
	}
	return float64(k.messages-1) / counting.last.Sub(counting.first).Seconds(), nil
}

// processor is a consumer.Processor that also takes batches.
type processor interface {
	consumer.Processor
	consumer.BatchProcessor
}

// counting records when the first and the last message are answered.
type counting struct {
	processor
	want int
	done chan struct{}

	mu          sync.Mutex
	answered    int
	first, last time.Time
}

// ProcessBatch implements consumer.BatchProcessor.
func (c *counting) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	errs := c.processor.ProcessBatch(ctx, msgs)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range msgs {
		if errs != nil && errs[i] != nil {
			continue
		}
		if c.answered++; c.answered == 1 {
			c.first = now
		}
		if c.answered == c.want {
			c.last = now
			close(c.done)
		}
	}
	return errs
}

// newTxonce returns a Consumer with a plain handler.
func newTxonce(pool *pgxpool.Pool) (processor, error) {
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config[pgx.Tx]{
		Name: "bench", Store: store, Key: consumer.JSONKey("id"),
		Handle: func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error { return effect(ctx, tx, msg) },
	})
}

func effect(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (payload) VALUES ($1)`, msg.Payload)
	return err
}

// bare does the same without claims, so a repeated delivery has its effect again.
type bare struct{ pool *pgxpool.Pool }

func newBare(pool *pgxpool.Pool) (processor, error) { return &bare{pool}, nil }

// Process implements consumer.Processor.
func (b *bare) Process(ctx context.Context, msg *consumer.Message) error {
	return b.ProcessBatch(ctx, []*consumer.Message{msg})[0]
}

// ProcessBatch implements consumer.BatchProcessor with one transaction, like Consumer.
func (b *bare) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for _, msg := range msgs {
			if err := effect(ctx, tx, msg); err != nil {
				return err
			}
		}
		return nil
	})
	errs := make([]error, len(msgs))
	for i := range errs {
		if err != nil {
			errs[i] = &consumer.RetryError{Err: err, After: 50 * time.Millisecond}
		}
	}
	return errs
}

// openPostgres makes a schema with this name.
func openPostgres(ctx context.Context, schema string) (pool *pgxpool.Pool, drop func() error, err error) {
	cfg, err := pgxpool.ParseConfig(os.Getenv("TXONCE_POSTGRES"))
	if err != nil {
		return nil, nil, fmt.Errorf("TXONCE_POSTGRES: %w", err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = 2 * concurrency * 8 // each of Kafka's partitions has its own batch
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, fmt.Errorf("TXONCE_POSTGRES: %w", err)
	}
	drop = func() error {
		_, err := pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+schema+" CASCADE")
		pool.Close()
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema+"; CREATE TABLE effects (payload json)", pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	db := stdlib.OpenDBFromPool(pool)
	if err := errors.Join(migrations.Apply(ctx, db, "postgres", ""), db.Close()); err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return pool, drop, nil
}
