package watermilltx_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

func exampleStore(ctx context.Context) (store *sqlstore.Store, remove func()) {
	dir, err := os.MkdirTemp("", "watermilltx")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		panic(err)
	}
	if err := migrations.Apply(ctx, db, "sqlite", ""); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE charges (order_id TEXT)`); err != nil {
		panic(err)
	}
	if store, err = sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite}); err != nil {
		panic(err)
	}
	return store, func() { db.Close(); os.RemoveAll(dir) }
}

// The same order comes twice, under two UUIDs. In a program, the Router calls what Middleware returns.
func ExampleMiddleware() {
	store, remove := exampleStore(context.Background())
	defer remove()
	once, err := watermilltx.New(watermilltx.Config[*sql.Tx]{
		Name: "billing", Store: store, Outbox: store, Key: consumer.JSONKey("order_id"),
		Topic:  func(_, _ *message.Message) string { return "charges" }, // without a Router it must be said
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	handler := once.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("charging", string(msg.Payload))
		_, err := watermilltx.Tx[*sql.Tx](msg.Context()).Exec(`INSERT INTO charges (order_id) VALUES ('A')`)
		return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, err
	})
	for range 2 {
		left, err := handler(message.NewMessage(watermill.NewUUID(), []byte(`{"order_id": "A"}`)))
		fmt.Println(len(left), "messages for the Router to publish,", err)
	}
	stats, err := store.Outbox().Stats(context.Background())
	fmt.Println(stats.Pending, "in the outbox,", err)
	// Output:
	// charging {"order_id": "A"}
	// 0 messages for the Router to publish, <nil>
	// 0 messages for the Router to publish, <nil>
	// 1 in the outbox, <nil>
}

// A Consumer that was written for Kafka, behind any of watermill's subscribers.
func ExampleHandler() {
	store := consumertest.NewStore() // a program has a pgxstore.Store or a sqlstore.Store
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(func(_ context.Context, tx *deduptest.Tx, o struct {
			ID string `json:"order_id"`
		},
		) error {
			return tx.Add(o.ID)
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	handler, err := watermilltx.NewHandler(watermilltx.HandlerConfig{Processor: billing})
	if err != nil {
		panic(err)
	}
	// router.AddConsumerHandler("billing", "orders", subscriber, handler.Handle)
	for range 2 {
		fmt.Println(handler.Handle(message.NewMessage(watermill.NewUUID(), []byte(`{"order_id": "A"}`))))
	}
	fmt.Println(store.Database().Count("A"), "charge")
	// Output:
	// <nil>
	// <nil>
	// 1 charge
}

func ExamplePublisher() {
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	publisher, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: broker, AcceptedRisks: []watermilltx.Risk{watermilltx.RiskInMemory}})
	if err != nil {
		panic(err)
	}
	_, err = relay.New(relay.Config{Queue: outboxtest.NewMemory(), Publisher: publisher}) // whose Run calls Publish
	fmt.Println(err)
	publisher.Publish(context.Background(), []outbox.Message{{
		// a relay sets it
		ID: "order-A:charged", Topic: "charges", Payload: []byte("42"),
		Headers: map[string]string{outbox.HeaderID: "order-A:charged"},
	}})
	arrived, err := broker.Subscribe(context.Background(), "charges")
	if err != nil {
		panic(err)
	}
	msg := <-arrived
	fmt.Println(msg.Metadata.Get(outbox.HeaderID), string(msg.Payload))
	// Output:
	// <nil>
	// order-A:charged 42
}

func ExampleUnwrap() {
	store, remove := exampleStore(context.Background())
	defer remove()
	leaving, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "forwarder", Store: store, Key: watermilltx.EnvelopeKey, Handle: watermilltx.Unwrap(store),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	envelope := `{"destination_topic": "charges", "uuid": "1c1f0cc6", "payload": "NDI=", "metadata": {}}`
	for range 2 {
		fmt.Println(leaving.Process(context.Background(), &consumer.Message{Topic: "forwarder_topic", Payload: []byte(envelope)}))
	}
	stats, err := store.Outbox().Stats(context.Background())
	fmt.Println(stats.Pending, "in the outbox,", err)
	// Output:
	// <nil>
	// <nil>
	// 1 in the outbox, <nil>
}
