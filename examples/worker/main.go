// Command worker charges the orders of a Kafka topic in PostgreSQL, and announces each charge.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type billing struct{ store *pgxstore.Store }

// charge runs inside the transaction that claims the order: all of it is committed, or nothing.
func (b billing) charge(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
	if _, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Cents); err != nil {
		return err
	}
	return b.store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: o.OrderID, Payload: []byte(`{"charged": "` + o.OrderID + `"}`)})
}

func run(ctx context.Context, database string, brokers []string) error {
	pool := must(pgxpool.New(ctx, database))
	defer pool.Close()
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		// "": the first schema of search_path. Or use your own tool: package migrations
		return err
	}
	client := must(sarama.NewClient(brokers, kafka.NewConfig())) // NewConfig: settings that lose no message
	defer client.Close()

	store := must(pgxstore.New(pgxstore.Config{Pool: pool}))
	orders := must(consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(billing{store}.charge),
	}))
	subscriber := must(kafka.NewSubscriber(kafka.SubscriberConfig{Client: client, Group: "billing", Topics: []string{"orders"}, Processor: orders}))
	publisher := must(kafka.NewPublisher(kafka.PublisherConfig{Client: client}))
	defer publisher.Close()
	outgoing := must(relay.New(relay.Config{Queue: store, Publisher: publisher}))
	sweeper := must(dedup.NewSweeper(dedup.SweeperConfig{Store: store}))

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return subscriber.Run(ctx) }) // handles messages
	g.Go(func() error { return outgoing.Run(ctx) })   // publishes what handlers have enqueued
	// deletes keys that are older than Config.Window (default: 15 days)
	g.Go(func() error { return sweeper.Run(ctx) })
	// processes dead letters again when an operator requests it: txonce dead-letters replay
	g.Go(func() error { return orders.RunReplays(ctx) })
	return g.Wait() // after SIGTERM each finishes the work in progress
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), strings.Split(os.Getenv("KAFKA_BROKERS"), ",")); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
