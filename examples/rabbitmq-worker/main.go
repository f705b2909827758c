// Command rabbitmq-worker charges orders from a RabbitMQ queue and announces each charge in another queue. It sends
// each order twice; each is charged once, also if you kill it with -9 and run it again.
//
//	make services-up
//	go run ./examples/rabbitmq-worker
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// Order is the message.
type Order struct {
	ID    string `json:"order"`
	Cents int    `json:"cents"`
}

func main() {
	url := flag.String("rabbitmq", "amqp://guest:guest@127.0.0.1:21472/",
		"RabbitMQ's `URL`; make services-up uses the default")
	database := flag.String("postgres", "postgres://postgres@127.0.0.1:21415/postgres?sslmode=disable",
		"PostgreSQL's `DSN`; make services-up uses the default")
	name := flag.String("name", "txonce_rabbitmq_worker",
		"`name` of the schema; the queues are name-orders and name-charged")
	orders := flag.Int("orders", 2000, "how many `orders` to send, each twice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *database, *name, *orders); err != nil {
		log.Fatal(err)
	}
}

// run sends orders and works until all are charged and announced, or ctx ends.
func run(ctx context.Context, url, database, name string, orders int) error {
	d, err := open(ctx, url, database, name)
	if err != nil {
		return err
	}
	defer d.close()
	dial := rabbitmq.Dial(url, amqp.Config{})
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: dial}) // a topic is the name of a queue
	if err != nil {
		return err
	}
	defer publisher.Close()
	if err := d.send(ctx, publisher, orders); err != nil {
		return err
	}
	charged := false
	ctx, done := context.WithCancel(ctx)
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return work(ctx, d.pool, dial, publisher, name+"-orders", name+"-charged") })
	// a real worker runs until SIGTERM
	g.Go(func() error { return d.watch(ctx, orders, func() { charged = true; done() }) })
	if err := g.Wait(); err != nil || !charged {
		return err
	}
	return d.tidy()
}

// work is the part to copy. It charges each order in the queue orders once, and announces each charge in the queue
// charged.
func work(ctx context.Context, pool *pgxpool.Pool, dial rabbitmq.Dialer, publisher *rabbitmq.Publisher, orders,
	charged string,
) error {
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	billing, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order"),
		// The claim, the charge and the announcement are one transaction: all of it is committed, or nothing.
		Handle: consumer.JSON(func(ctx context.Context, tx pgx.Tx, o Order) error {
			if _, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.ID,
				o.Cents); err != nil {
				return err
			}
			return store.Enqueue(ctx, tx, outbox.Message{Topic: charged, OrderingKey: o.ID, Payload: fmt.Appendf(nil, `{"charged":%q}`, o.ID)})
		}),
	})
	if err != nil {
		return err
	}
	worker, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial: dial, Queue: orders, Processor: billing,
		Spec: rabbitmq.QueueSpec{Quorum: true, DeliveryLimit: rabbitmq.NoDeliveryLimit},
	})
	if err != nil {
		return err
	}
	outgoing, err := relay.New(relay.Config{Queue: store, Publisher: publisher})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx) // after SIGTERM both finish the work in progress
	g.Go(func() error { return worker.Run(ctx) })
	g.Go(func() error { return outgoing.Run(ctx) })
	return g.Wait()
}
