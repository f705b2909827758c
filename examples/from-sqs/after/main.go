// Command after is ../before with nine lines changed: it charges each order once, however often SQS delivers it. Install
// txonce's tables first, with `txonce migrate up` or pgxstore.Migrate, and let one program run a dedup.Sweeper.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// OrderPlaced is the message.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
}

type worker struct {
	client   *sqs.Client
	queueURL string
	billing  *consumer.Consumer[pgx.Tx]
}

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		got, err := w.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &w.queueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			return err
		}
		for _, msg := range got.Messages {
			if err := w.billing.Process(ctx, awssqs.ToMessage("orders", msg)); err != nil {
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
	store := must(pgxstore.New(pgxstore.Config{Pool: pool}))
	billing := must(consumer.New(consumer.Config[pgx.Tx]{Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(charge)}))
	w := &worker{client, os.Getenv("QUEUE_URL"), billing}
	must(w, awssqs.CheckWindow(ctx, w.client, w.queueURL, billing.Window()))
	must(w, billing.Start(ctx))
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
