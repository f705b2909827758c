// Command watermill is a watermill Router on PostgreSQL. Its handler charges and announces each order once, however
// often the order is delivered. before and after show how to convert a handler; this command also runs the relay for
// the announcements. demo.go places every order three times, and some attempts fail.
//
//	make services-up
//	( . .services/env; DATABASE_URL=$TXONCE_POSTGRES go run ./examples/watermill )
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox/relay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db := must(sql.Open("pgx", os.Getenv("DATABASE_URL")))
	defer db.Close()
	demo := must(prepare(ctx, db))

	// The Router without txonce: a subscriber, a publisher, middlewares.
	logger, schema := watermill.NopLogger{}, watermillsql.DefaultPostgreSQLSchema{}
	orders := must(watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup: "billing", InitializeSchema: true, PollInterval: 50 * time.Millisecond,
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}, logger))
	settings := watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}
	events := must(watermillsql.NewPublisher(db, settings, logger))
	router := must(message.NewRouter(message.RouterConfig{}, logger))
	router.AddMiddleware(middleware.Recoverer, middleware.Retry{MaxRetries: 3, InitialInterval: 10 * time.Millisecond}.Middleware)

	// What txonce adds: a store, a middleware, and a relay for the messages that the handler produces.
	store := must(sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres}))
	once := must(watermilltx.New(watermilltx.Config[*sql.Tx]{
		Name: "billing", Store: store, Outbox: store, Key: consumer.JSONKey("order_id"), Trace: demo.trace(),
	}))
	router.AddHandler("billing", demo.orders, orders, demo.charges, events, demo.charge).AddMiddleware(once.Middleware)
	router.AddConsumerHandler("print", demo.charges, orders, demo.announced)
	// a second publisher: the Router closes the first one
	relayed := must(watermillsql.NewPublisher(db, settings, logger))
	publisher := must(watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: relayed, Confirms: true}))
	outgoing := must(relay.New(relay.Config{Queue: store, Publisher: publisher}))

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return router.Run(ctx) })
	g.Go(func() error { return outgoing.Run(ctx) })
	g.Go(func() error { return demo.run(ctx, router, relayed, stop) })
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
