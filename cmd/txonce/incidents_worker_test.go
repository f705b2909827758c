package main

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// bill is examples/worker with other topics, a short session of the group, and a Recorder for the dashboard.
func bill(ctx context.Context) error {
	go func() { // the parent's end is this process's end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	of := strings.Split(os.Getenv(envDB), "\n")
	pool, err := pgxpool.New(ctx, of[0])
	if err != nil {
		return err
	}
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	cfg := kafka.NewConfig()
	cfg.Consumer.Group.Session.Timeout, cfg.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	client, err := sarama.NewClient(strings.Split(of[1], ","), cfg)
	if err != nil {
		return err
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	activity := ops.NewRecorder(store.Activity())
	billing, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Trace: activity.Trace(),
		Handle: consumer.JSON(func(ctx context.Context, tx pgx.Tx, o orderPlaced) error {
			if _, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID,
				o.Cents); err != nil {
				return err
			}
			return store.Enqueue(ctx, tx, outbox.Message{Topic: of[3], OrderingKey: o.OrderID, Payload: []byte(`{"charged": "` + o.OrderID + `"}`)})
		}),
	})
	if err != nil {
		return err
	}
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: of[2], Topics: []string{of[2]},
		Processor: billing,
	})
	if err != nil {
		return err
	}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		return err
	}
	outgoing, err := relay.New(relay.Config{Queue: store, Publisher: publisher})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{subscriber.Run, outgoing.Run, billing.RunReplays, activity.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}
