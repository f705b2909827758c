// Command sqs-batch charges the orders that lie in an SQS queue, a batch of them in one statement. Each was sent twice (demo.go), and
// is charged once.
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
	endpoint := flag.String("endpoint", "http://127.0.0.1:21424", "SQS's `URL`; by default that of make services-up")
	orders := flag.Int("orders", 2000, "how many are sent, each twice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := sqs.New(sqs.Options{BaseEndpoint: endpoint, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if err := demo(ctx, client, *orders); err != nil {
		log.Fatal(err)
	}
}

// work charges what arrives in queue, until ctx ends. What it has begun is finished first.
func work(ctx context.Context, client *sqs.Client, queue string, db *sql.DB, trace *consumer.Trace) error {
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		return err
	}
	billing, err := consumer.New(consumer.Config[*sql.Tx]{Name: "billing", Store: store, Key: consumer.JSONKey("order"), HandleBatch: charge, Trace: trace})
	if err != nil {
		return err
	}
	worker, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{Client: client, Queue: queue, Processor: billing})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// charge charges all orders of a batch, in the transaction in which their keys are claimed. None of them was charged before.
func charge(ctx context.Context, tx *sql.Tx, msgs []*consumer.Message) error {
	orders := make([]json.RawMessage, len(msgs))
	for i, m := range msgs {
		orders[i] = m.Payload
	}
	batch, err := json.Marshal(orders)
	if err != nil {
		return consumer.Permanent(err) // one that is no JSON is found, and parked
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO charges SELECT value ->> 'order', value ->> 'cents' FROM json_each(?)`, string(batch))
	return err
}
