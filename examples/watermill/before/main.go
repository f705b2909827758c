// Command before is a typical watermill Router. It writes to a database and then publishes, so it charges some orders
// twice and never announces others. ../after is the same with four lines changed.
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
	if _, err := h.db.Exec(`INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID,
		order.Amount); err != nil {
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
	router := must(message.NewRouter(message.RouterConfig{}, log))
	router.AddMiddleware(middleware.Recoverer, middleware.Retry{MaxRetries: 3}.Middleware)
	router.AddHandler("billing", "orders", orders, "charges", events, h.charge)
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
