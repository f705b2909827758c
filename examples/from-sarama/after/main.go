// Command after is ../before with nine lines changed: it charges each order once, however often Kafka delivers it.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

type handler struct {
	billing consumer.Processor
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if err := h.billing.Process(session.Context(), kafka.ToMessage(msg)); err != nil {
				return err
			}
			session.MarkMessage(msg, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func charge(ctx context.Context, tx pgx.Tx, order OrderPlaced) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID, order.Amount)
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg := kafka.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	must(cfg, kafka.Check(cfg))
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	group := must(sarama.NewConsumerGroup(strings.Split(os.Getenv("KAFKA"), ","), "billing", cfg))
	store := must(pgxstore.New(pgxstore.Config{Pool: pool}))
	h := &handler{must(consumer.New(consumer.Config[pgx.Tx]{Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(charge)}))}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{"orders"}, h); err != nil {
			log.Print(err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
