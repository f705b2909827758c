package ownloop

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/testlog"
)

// billing returns a consumer, and what it has charged and parked.
func billing(t *testing.T) (orders *consumer.Consumer[pgx.Tx], charged func() string, parked func() int) {
	pool, err := pgxpool.New(t.Context(), testdb.Tables(t, testdb.Postgres(t), `CREATE TABLE charges (order_id text)`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	type order struct{ ID string }
	orders, err = consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("ID"), Logger: new(testlog.Log).Logger(),
		Handle: consumer.JSON(func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, `INSERT INTO charges VALUES ($1)`, o.ID)
			return err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	charged = func() string {
		rows, _ := pool.Query(context.WithoutCancel(t.Context()), `SELECT order_id FROM charges ORDER BY 1`)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
	parked = func() int {
		letters, err := store.DeadLetters(context.WithoutCancel(t.Context()), consumer.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(letters)
	}
	return orders, charged, parked
}

var bodies = []string{`{"ID":"a"}`, `{"ID":"b"}`, `{"ID":"a"}`, `no JSON`}

// until runs loop until the queue is empty, and checks what was charged and parked.
func until(t *testing.T, empty func() bool, loop func(ctx context.Context) error, charged func() string,
	parked func() int,
) {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil && !(parked() == 1 && charged() == "a b" &&
		empty()); {
		select {
		case <-tick:
		case err := <-ended:
			t.Fatalf("the loop ended: %v", err)
		}
	}
	late := ctx.Err()
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if late != nil {
		t.Errorf("charged %q, want a b; %d parked, want 1; the queue is empty: %v", charged(), parked(), empty())
	}
}

func TestSQS(t *testing.T) {
	t.Parallel()
	client := testsqs.Server(t)
	queueURL := testsqs.Queue(t, client, nil)
	for _, body := range bodies {
		if _, err := client.SendMessage(t.Context(),
			&sqs.SendMessageInput{QueueUrl: &queueURL, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	empty := func() bool {
		got, err := client.GetQueueAttributes(context.WithoutCancel(t.Context()), &sqs.GetQueueAttributesInput{
			QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got.Attributes["ApproximateNumberOfMessages"] == "0" &&
			got.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
	}
	orders, charged, parked := billing(t)
	until(t, empty, func(ctx context.Context) error {
		return receiveSQS(ctx, client, aws.ToString(&queueURL), queueURL, orders)
	}, charged, parked)
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	queue := testrabbitmq.Queue(t, url, nil)
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		if err := ch.PublishWithContext(t.Context(), "", queue, false, false,
			amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent}); err != nil {
			t.Fatal(err)
		}
	}
	orders, charged, parked := billing(t)
	until(t, func() bool { return testrabbitmq.Ready(t, url, queue) == 0 }, func(ctx context.Context) error {
		return receiveRabbitMQ(ctx, ch, queue, orders)
	}, charged, parked)
	if err := conn.Close(); err != nil { // gives back what was not acknowledged
		t.Fatal(err)
	}
	if n := testrabbitmq.Ready(t, url, queue); n != 0 {
		t.Errorf("%d messages were not acknowledged", n)
	}
}

// docs/getting-started.md shows the two functions as they are.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"sqs.go", "rabbitmq.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, function, found := strings.Cut(string(code), "\nfunc ")
		if !found || !strings.Contains(string(page), "```go\nfunc "+function+"```") {
			t.Errorf("the page does not show the function of %s", file)
		}
	}
}
