// Command before is a typical SQS worker on pgx. When SQS delivers an order again, it charges the order again. Compare it
// with ../after.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

type worker struct {
	client   *sqs.Client
	queueURL string
	pool     *pgxpool.Pool
}

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		got, err := w.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &w.queueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
		})
		if err != nil {
			return err
		}
		for _, msg := range got.Messages {
			if err := w.process(ctx, msg); err != nil {
				log.Print(err) // SQS delivers it again after the visibility timeout
				continue
			}
			_, err := w.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
				QueueUrl: &w.queueURL, ReceiptHandle: msg.ReceiptHandle,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *worker) process(ctx context.Context, msg types.Message) error {
	var order OrderPlaced
	if err := json.Unmarshal([]byte(aws.ToString(msg.Body)), &order); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return charge(ctx, tx, order) })
}

func charge(ctx context.Context, tx pgx.Tx, order OrderPlaced) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, amount) VALUES ($1, $2)`, order.OrderID, order.Amount)
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String(os.Getenv("SQS")), Region: "elasticmq",
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	w := &worker{client, os.Getenv("QUEUE_URL"), pool}
	if err := w.run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
