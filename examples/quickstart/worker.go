package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox/relay"
)

// This is the file to copy: a worker that charges each order once and announces each charge, however often an order is
// delivered and whenever the worker crashes. It uses pgx; worker_sql.go is the same on database/sql. worker_kafka.go,
// worker_sqs.go and worker_rabbitmq.go connect it to a broker.

// workOnPgx charges orders in PostgreSQL until it gets SIGTERM.
func workOnPgx(ctx context.Context, w workerConfig, charge handler[pgx.Tx]) error {
	pool, err := pgxpool.New(ctx, w.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	return work(ctx, w, store, charge)
}

// work consumes orders and relays events. One transaction of type TTx claims the order, charges it and enqueues the
// event: all three are committed, or none.
func work[TTx any](ctx context.Context, w workerConfig, store store[TTx], charge handler[TTx]) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	handle := func(ctx context.Context, tx TTx, o Order) error { return charge(ctx, tx, store, o) }
	activity := ops.NewRecorder(store.Activity()) // for the dashboard
	cfg := consumer.Config[TTx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Trace: activity.Trace().Then(w.Trace),
		ParkLimit: consumer.ParkLimit{Unlimited: true}, // because the demo plants poison; leave this out
	}
	if w.broker == "sqs" || w.broker == "rabbitmq" { // any worker may get any order
		cfg.HandleBatch = byCustomer(handle)
	} else {
		cfg.Handle = consumer.JSON(handle)
	}
	billing, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	broker, err := w.connect(billing)
	if err != nil {
		return err
	}
	defer broker.close()
	outgoing, err := relay.New(relay.Config{Queue: store, Publisher: broker.events, LeaseTTL: w.LeaseTTL})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx) // after SIGTERM both finish the work in progress
	g.Go(func() error { return outgoing.Run(ctx) })
	g.Go(func() error { return broker.orders.Run(ctx) })
	g.Go(func() error { return billing.RunReplays(ctx) }) // those that operators request
	g.Go(func() error { return activity.Run(ctx) })
	return g.Wait()
}
