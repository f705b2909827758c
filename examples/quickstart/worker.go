package main

import (
	"context"
	"database/sql"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// This is the file to copy: a worker that charges each order once, however often it comes, wherever the worker dies.

// workOnPgx charges orders in PostgreSQL until it is told to stop.
func workOnPgx(ctx context.Context, w workerConfig, charge func(context.Context, pgx.Tx, Order) error) error {
	pool, err := pgxpool.New(ctx, w.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	return consume(ctx, w, store, charge)
}

// workOnSQL does the same on database/sql: PostgreSQL or SQLite.
func workOnSQL(ctx context.Context, w workerConfig, charge func(context.Context, *sql.Tx, Order) error) error {
	db, err := sql.Open(w.Driver, w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: w.Dialect})
	if err != nil {
		return err
	}
	return consume(ctx, w, store, charge)
}

// consume charges orders in transactions of type TTx, which also remember the order: both are committed, or neither.
func consume[TTx any](ctx context.Context, w workerConfig, store dedup.Store[TTx], charge func(context.Context, TTx, Order) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := sarama.NewClient(w.Kafka, w.Sarama)
	if err != nil {
		return err
	}
	defer client.Close()

	billing, err := consumer.New(consumer.Config[TTx]{
		Name:      "billing",
		Store:     store,
		Key:       consumer.JSONKey("order_id"),
		Handle:    consumer.JSON(charge),
		ParkLimit: consumer.ParkLimit{Unlimited: true}, // for the demo, which plants poison; leave this out
		Trace:     w.Trace,
	})
	if err != nil {
		return err
	}
	orders, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: w.Group, Topics: []string{w.Topic}, Processor: billing, Trace: w.KafkaTrace,
	})
	if err != nil {
		return err
	}
	return orders.Run(ctx) // until SIGTERM; then it finishes what it has begun
}
