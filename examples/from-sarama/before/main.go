// Command before is a typical Kafka worker on sarama. When Kafka delivers an order again, it charges the order again.
// Compare it with ../after.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

type handler struct {
	pool *pgxpool.Pool
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
			if err := h.process(session.Context(), msg); err != nil {
				return err
			}
			session.MarkMessage(msg, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (h *handler) process(ctx context.Context, msg *sarama.ConsumerMessage) error {
	var order OrderPlaced
	if err := json.Unmarshal(msg.Value, &order); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error { return charge(ctx, tx, order) })
}

func charge(ctx context.Context, tx pgx.Tx, order OrderPlaced) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID, order.Amount)
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	group := must(sarama.NewConsumerGroup(strings.Split(os.Getenv("KAFKA"), ","), "billing", cfg))
	h := &handler{pool}
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
