// Command kafka-worker charges orders that it reads from Kafka, in PostgreSQL, and announces each charge: once, however often
// an order is delivered and wherever the worker dies. demo.go places orders, some of them twice, so that there is something to see.
//
//	make services-up
//	( . .services/env; DATABASE_URL=$TXONCE_POSTGRES KAFKA_BROKERS=$TXONCE_KAFKA go run ./examples/kafka-worker )
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
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	client := must(sarama.NewClient(strings.Split(os.Getenv("KAFKA_BROKERS"), ","), kafka.NewConfig()))
	defer client.Close()
	demo := must(prepare(ctx, pool, client))

	store := must(pgxstore.New(pgxstore.Config{Pool: pool}))
	charge := func(ctx context.Context, tx pgx.Tx, o OrderPlaced) error { // all of it is committed, or nothing
		if _, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Cents); err != nil {
			return err
		}
		return store.Enqueue(ctx, tx, outbox.Message{Topic: demo.charges, Key: o.OrderID, Payload: []byte(`{"charged": "` + o.OrderID + `"}`)})
	}
	billing := must(consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(charge), Trace: demo.trace(),
	}))
	orders := must(kafka.NewSubscriber(kafka.SubscriberConfig{Client: client, Group: "billing", Topics: []string{demo.orders}, Processor: billing}))
	events := must(kafka.NewPublisher(kafka.PublisherConfig{Client: client}))
	defer events.Close()
	outgoing := must(relay.New(relay.Config{Queue: store, Publisher: events}))

	g, ctx := errgroup.WithContext(ctx) // until SIGTERM; then all finish what they have begun
	g.Go(func() error { return orders.Run(ctx) })
	g.Go(func() error { return outgoing.Run(ctx) })
	g.Go(func() error { return demo.run(ctx, client, stop) })
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
