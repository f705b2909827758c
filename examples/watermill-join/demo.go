package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
)

// orderCount is how many orders the demo places, twice each.
const orderCount = 10

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

// demo is the application's handler, a producer of orders, and the output.
type demo struct {
	db     *sql.DB
	topic  string // new for each run
	failed sync.Map
}

func prepare(ctx context.Context, db *sql.DB) (*demo, error) {
	if err := migrations.Apply(ctx, db, "postgres", ""); err != nil {
		return nil, err
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS charges (order_id text, amount bigint)`)
	return &demo{db: db, topic: fmt.Sprintf("orders_%d", time.Now().UnixMilli())}, err
}

// charge is the handler. Its transaction is the one that watermill-sql's subscriber received the message in.
func (d *demo) charge(msg *message.Message) error {
	var order OrderPlaced
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return consumer.Permanent(err)
	}
	_, err := watermilltx.Tx[*sql.Tx](msg.Context()).ExecContext(msg.Context(),
		`INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID, order.Amount)
	if err != nil {
		return err
	}
	if _, again := d.failed.LoadOrStore(order.OrderID, true); order.Amount%3 == 2 && !again {
		return errors.New("out of luck, after the charge")
	}
	return nil
}

// run places the orders, waits until watermill-sql has acknowledged all of them, and reports.
func (d *demo) run(ctx context.Context, router *message.Router, publisher message.Publisher, stop func()) error {
	defer stop()
	<-router.Running()
	for range 2 {
		for i := range orderCount {
			body := fmt.Sprintf(`{"order_id": "%s/%d", "amount": %d}`, d.topic, i, i)
			if err := publisher.Publish(d.topic, message.NewMessage(watermill.NewUUID(), []byte(body))); err != nil {
				return err
			}
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for acked := 0; acked < 2*orderCount; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := d.db.QueryRowContext(ctx, `SELECT coalesce(max(offset_acked), 0) FROM "watermill_offsets_`+d.topic+
			`" WHERE consumer_group = 'billing'`).Scan(&acked)
		if err != nil {
			return err
		}
	}
	var charged, twice int
	err := d.db.QueryRowContext(ctx, `SELECT count(DISTINCT order_id), count(*) - count(DISTINCT order_id)
		FROM charges WHERE order_id LIKE $1`, d.topic+"/%").Scan(&charged, &twice)
	fmt.Printf("%d messages: %d orders charged, %d charged twice\n", 2*orderCount, charged, twice)
	return err
}
