// Command after is ../before with four lines changed besides the imports: it charges and announces each order once,
// however often it is delivered. A relay publishes the announcements: see ../main.go.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

type handler struct {
	db *sql.DB
}

func (h *handler) charge(msg *message.Message) ([]*message.Message, error) {
	var order OrderPlaced
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, err
	}
	if _, err := watermilltx.Tx[*sql.Tx](msg.Context()).Exec(`INSERT INTO charges (order_id, amount) VALUES ($1, $2)`,
		order.OrderID, order.Amount); err != nil {
		return nil, err
	}
	return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log := watermill.NewStdLogger(false, false)
	db := must(sql.Open("pgx", os.Getenv("DATABASE_URL")))
	schema := watermillsql.DefaultPostgreSQLSchema{}
	orders := must(watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup: "billing", InitializeSchema: true, SchemaAdapter: schema,
		OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}, log))
	events := must(watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, log))
	h := &handler{db: db}
	store := must(sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres}))
	once := must(watermilltx.New(watermilltx.Config[*sql.Tx]{Name: "billing", Store: store, Outbox: store, Key: consumer.JSONKey("order_id")}))
	router := must(message.NewRouter(message.RouterConfig{}, log))
	router.AddMiddleware(middleware.Recoverer, middleware.Retry{MaxRetries: 3}.Middleware)
	router.AddHandler("billing", "orders", orders, "charges", events, h.charge).AddMiddleware(once.Middleware)
	if err := router.Run(ctx); err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
