package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// demo makes a queue and a database, sends orders, runs work until all are handled or ctx ends, and counts the charges.
func demo(ctx context.Context, client *sqs.Client, orders int) error {
	dir, err := os.MkdirTemp("", "sqs-batch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrations.Apply(ctx, db, "sqlite", ""); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE charges (order_id TEXT, cents INTEGER)`); err != nil {
		// no unique key, so that a second charge would show
		return err
	}

	name := "txonce-sqs-batch-" + strings.ToLower(rand.Text()[:12]) // unique: several demos may share a server
	queue, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		return fmt.Errorf("is SQS there? make services-up starts a server: %w", err)
	}
	defer func() {
		if _, err := client.DeleteQueue(context.WithoutCancel(ctx),
			&sqs.DeleteQueueInput{QueueUrl: queue.QueueUrl}); err != nil {
			log.Printf("queue %s is left behind: %v", name, err)
		}
	}()
	if err := send(ctx, client, name, orders); err != nil {
		return err
	}
	fmt.Printf("%d messages sent: %d orders, each twice\n", 2*orders, orders)

	working, done := context.WithCancel(ctx)
	defer done()
	var seen sync.Map // positions; SQS may deliver a message again
	var handled atomic.Int64
	trace := &consumer.Trace{Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
		for i, o := range outcomes { // the hook Acked may miss a deletion whose answer was lost
			if o.Outcome != observe.Processed && o.Outcome != observe.Duplicate {
				continue
			}
			if _, again := seen.LoadOrStore(d.Messages[i].Position, true); !again && handled.Add(1) == int64(2*orders) {
				done()
			}
		}
	}}
	if err := work(working, client, name, db, trace); err != nil {
		return err
	}
	var charges, charged int
	if err := db.QueryRowContext(context.WithoutCancel(ctx),
		`SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&charges, &charged); err != nil {
		return err
	}
	fmt.Printf("%d messages handled: %d charges of %d orders\n", handled.Load(), charges, charged)
	return nil
}

// send sends each order twice, like a producer that did not get an answer. A producer with a database should use an
// outbox.
func send(ctx context.Context, client *sqs.Client, queue string, orders int) error {
	publisher, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: client})
	if err != nil {
		return err
	}
	var msgs []outbox.Message
	for i := range 2 * orders {
		msgs = append(msgs, outbox.Message{Topic: queue, Payload: fmt.Appendf(nil, `{"order":"A-%d","cents":%d}`, i%orders, 100+i%orders)})
	}
	for _, err := range publisher.Publish(ctx, msgs) {
		if err != nil {
			return err
		}
	}
	return nil
}
