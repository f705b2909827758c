package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/observe"
)

// orderCount is how many orders the demo places, three times each.
const orderCount = 10

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

// demo is the application's handler, a producer of orders, and the output.
type demo struct {
	db              *sql.DB
	orders, charges string   // topics, new for each run
	failed          sync.Map // order ids
	failures        atomic.Int64
	duplicates      atomic.Int64
	announcements   atomic.Int64
}

func prepare(ctx context.Context, db *sql.DB) (*demo, error) {
	run := fmt.Sprint(time.Now().UnixMilli())
	if err := migrations.Apply(ctx, db, "postgres", ""); err != nil {
		return nil, err
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS charges (order_id text, amount bigint)`)
	return &demo{db: db, orders: "orders_" + run, charges: "charges_" + run}, err
}

// charge is the handler. For every third order its first attempt fails after the charge.
func (d *demo) charge(msg *message.Message) ([]*message.Message, error) {
	var order OrderPlaced
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, consumer.Permanent(err)
	}
	_, err := watermilltx.Tx[*sql.Tx](msg.Context()).ExecContext(msg.Context(),
		`INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID, order.Amount)
	if err != nil {
		return nil, err
	}
	if _, again := d.failed.LoadOrStore(order.OrderID, true); order.Amount%3 == 2 && !again {
		d.failures.Add(1)
		fmt.Printf("fails      %s, after charging it\n", msg.Payload)
		return nil, errors.New("out of luck")
	}
	return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, nil
}

func (d *demo) announced(msg *message.Message) error {
	d.announcements.Add(1)
	fmt.Printf("announced  %s\n", msg.Payload)
	return nil
}

// trace prints and counts the outcome of each message.
func (d *demo) trace() *consumer.Trace {
	return &consumer.Trace{
		Done: func(_ context.Context, delivery *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			for i, o := range outcomes {
				switch o.Outcome {
				case observe.Processed:
					fmt.Printf("charged    %s\n", delivery.Messages[i].Payload)
				case observe.Duplicate:
					d.duplicates.Add(1)
				default:
				}
			}
		},
	}
}

// run publishes every order three times, waits until all have been handled and announced, and tells the Router to stop.
func (d *demo) run(ctx context.Context, router *message.Router, publisher message.Publisher, stop func()) error {
	defer stop()
	select {
	case <-router.Running(): // from here on the topics exist
	case <-ctx.Done():
		return nil
	}
	for range 3 {
		for i := range orderCount {
			payload, err := json.Marshal(OrderPlaced{OrderID: fmt.Sprint(d.orders, "/", i), Amount: int64(i)})
			if err != nil {
				return err
			}
			if err := publisher.Publish(d.orders, message.NewMessage(watermill.NewUUID(), payload)); err != nil {
				return err
			}
		}
	}
	for d.announcements.Load() < orderCount || d.duplicates.Load() < 2*orderCount {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	var charged, twice int
	err := d.db.QueryRowContext(ctx, `SELECT count(DISTINCT order_id), count(*) - count(DISTINCT order_id) FROM charges WHERE order_id LIKE $1`,
		d.orders+"/%").Scan(&charged, &twice)
	fmt.Printf("%d messages, %d attempts failed: %d orders charged, %d charged twice, %d announced\n",
		3*orderCount, d.failures.Load(), charged, twice, d.announcements.Load())
	return err
}
