// Command watermill-join handles messages that watermill-sql keeps in the application's own PostgreSQL. With Config.Join
// the effect, the claim and the acknowledgement of a message are one COMMIT, in the transaction of watermill-sql's
// subscriber. demo.go places every order twice, and the first attempt of some fails after the charge.
//
//	make services-up
//	( . .services/env; DATABASE_URL=$TXONCE_POSTGRES go run ./examples/watermill-join )
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db := must(sql.Open("pgx", os.Getenv("DATABASE_URL")))
	defer db.Close()
	demo := must(prepare(ctx, db))

	logger, schema := watermill.NopLogger{}, watermillsql.DefaultPostgreSQLSchema{}
	orders := must(watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup: "billing", InitializeSchema: true, PollInterval: 50 * time.Millisecond,
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}, logger))
	router := must(message.NewRouter(message.RouterConfig{}, logger))
	router.AddMiddleware(middleware.Recoverer)

	// What txonce adds. The Store has the database of the subscriber.
	store := must(sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres}))
	once := must(watermilltx.New(watermilltx.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Join: true,
	}))
	router.AddConsumerHandler("billing", demo.topic, orders, demo.charge).AddMiddleware(once.Middleware)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return router.Run(ctx) })
	g.Go(func() error {
		publisher := must(watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, logger))
		return demo.run(ctx, router, publisher, stop)
	})
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
