// Command sqs-batch charges the orders in an SQS queue, one INSERT per batch. demo.go sends each order twice; each is
// charged once.
//
//	make services-up
//	go run ./examples/sqs-batch
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
)

func main() {
	endpoint := flag.String("endpoint", "http://127.0.0.1:21424", "SQS's `URL`; make services-up uses the default")
	orders := flag.Int("orders", 2000, "how many `orders` to send, each twice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := sqs.New(sqs.Options{BaseEndpoint: endpoint, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if err := demo(ctx, client, *orders); err != nil {
		log.Fatal(err)
	}
}

// work charges the orders in queue until ctx ends, and then finishes the batch in progress.
func work(ctx context.Context, client *sqs.Client, queue string, db *sql.DB, trace *consumer.Trace) error {
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		return err
	}
	billing, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order"),
		HandleBatch: charge, Trace: trace,
	})
	if err != nil {
		return err
	}
	worker, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{Client: client, Queue: queue, Processor: billing})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// charge charges all orders of a batch in the transaction that claims their keys. It gets only orders that were not
// charged before.
func charge(ctx context.Context, tx *sql.Tx, msgs []*consumer.Message) error {
	orders := make([]json.RawMessage, len(msgs))
	for i, m := range msgs {
		orders[i] = m.Payload
	}
	batch, err := json.Marshal(orders)
	if err != nil {
		return consumer.Permanent(err) // an order is not valid JSON; the consumer finds and parks that one
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO charges SELECT value ->> 'order', value ->> 'cents' FROM json_each(?)`,
		string(batch))
	return err
}
