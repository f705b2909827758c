package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// idle counts the statements of relays that have nothing to publish.
func (b *bench) idle(ctx context.Context) error {
	t := b.report.table("idle", "statements/s")
	relays := []int{1, 3, 16}
	if b.size.short {
		relays = relays[:1] // several relays share the shards for longer than a short run lasts
	}
	for _, n := range relays {
		name := map[int]string{1: "1 relay", 3: "3 relays", 16: "16 relays"}[n]
		b.progress("idle, %s", name)
		err := b.server.inWorld(ctx, 1, false, func(ctx context.Context, w *world) error {
			counted := &statements{}
			cfg := w.pool.Config()
			cfg.ConnConfig.Tracer, cfg.MaxConns = counted, int32(3*n)
			pool, err := pgxpool.NewWithConfig(ctx, cfg)
			if err != nil {
				return err
			}
			defer pool.Close()
			relays := func(ctx context.Context) error {
				running, ctx := errgroup.WithContext(ctx)
				for i := range n {
					running.Go(func() error { return relayNothing(ctx, pool, fmt.Sprint("relay ", i)) })
				}
				return running.Wait()
			}
			return while(ctx, relays, func(ctx context.Context) error {
				for range 2 { // first until the relays have shared the shards
					counted.n.Store(0)
					select {
					case <-time.After(b.size.idle):
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				t.put("together", name, float64(counted.n.Load())/b.size.idle.Seconds())
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func relayNothing(ctx context.Context, pool *pgxpool.Pool, name string) error {
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Config{Queue: store, Publisher: nothing{}, Name: name})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// nothing is a publisher for an empty outbox.
type nothing struct{}

// Publish implements outbox.Publisher.
func (nothing) Publish(_ context.Context, msgs []outbox.Message) []error {
	panic(fmt.Sprintf("%d messages in an empty outbox", len(msgs)))
}

// statements counts the statements of a pool.
type statements struct{ n atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.n.Add(1) }

// TraceBatchEnd implements pgx.BatchTracer.
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
