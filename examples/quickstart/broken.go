package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// byHand is how the handler is often written: it notes which orders it has seen, but in a transaction of its own. It
// passes every test in which nobody dies. It is a consumer.Processor, so the rest of the demo stays as it is.
type byHand struct {
	db      *sql.DB
	way     string // "mark-first" or "effect-first"
	reports *reporter
	stop    *fault
}

// Process implements consumer.Processor.
func (b *byHand) Process(ctx context.Context, msg *consumer.Message) error {
	b.reports.begin(msg)
	var o Order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return fmt.Errorf("not an order: %w", err)
	}
	if o.Amount <= 0 {
		return nil // logged by the better ones
	}
	handle := b.effectFirst
	if b.way == "mark-first" {
		handle = b.markFirst
	}
	if err := handle(ctx, o); err != nil {
		return &consumer.RetryError{Err: err, After: 100 * time.Millisecond, Blameless: true}
	}
	return nil
}

// markFirst loses an order when it dies in between: the next delivery takes itself for a duplicate.
func (b *byHand) markFirst(ctx context.Context, o Order) error {
	first, err := b.mark(ctx, o)
	if err != nil || !first {
		return err
	}
	b.stop.At(o.ID)
	_, err = b.db.ExecContext(ctx, insertCharge, o.ID, o.Amount)
	return err
}

// effectFirst charges twice when it dies in between: the next delivery finds no mark.
func (b *byHand) effectFirst(ctx context.Context, o Order) error {
	var seen bool
	err := b.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM seen WHERE order_id = $1)`, o.ID).Scan(&seen)
	if err != nil || seen {
		return err
	}
	if _, err := b.db.ExecContext(ctx, insertCharge, o.ID, o.Amount); err != nil {
		return err
	}
	b.stop.At(o.ID)
	_, err = b.mark(ctx, o)
	return err
}

func (b *byHand) mark(ctx context.Context, o Order) (first bool, err error) {
	done, err := b.db.ExecContext(ctx, `INSERT INTO seen (order_id) VALUES ($1) ON CONFLICT DO NOTHING`, o.ID)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

// workBroken is workOnSQL with byHand in the place of a consumer.Consumer.
func workBroken(ctx context.Context, w workerConfig, way string, reports *reporter, stop *fault) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	db, err := sql.Open(w.Driver, w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := sarama.NewClient(w.Kafka, w.Sarama)
	if err != nil {
		return err
	}
	defer client.Close()
	orders, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: w.Group, Topics: []string{w.Topic}, Trace: w.KafkaTrace,
		Processor: &byHand{db: db, way: way, reports: reports, stop: stop},
	})
	if err != nil {
		return err
	}
	return orders.Run(ctx)
}
