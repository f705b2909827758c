// Command outbox-relay publishes to Kafka what other programs have enqueued in a PostgreSQL outbox. Run as many as you
// like: they share the work, and the others take over when one crashes. On SIGTERM it finishes the work in progress and
// ends.
//
//	outbox-relay -database postgres://… -brokers kafka-1:9092,kafka-2:9092
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox/relay"
)

func main() {
	database := flag.String("database", os.Getenv("DATABASE_URL"), "PostgreSQL's `DSN` (default: $DATABASE_URL)")
	schema := flag.String("schema", "", "the `schema` that has the tables (default: search_path decides)")
	brokers := flag.String("brokers", os.Getenv("KAFKA_BROKERS"),
		"Kafka's `addresses`, host:port,… (default: $KAFKA_BROKERS)")
	name := flag.String("name", "", "this relay's `name` in logs and in the database (default: host and process id)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *database, *schema, strings.Split(*brokers, ","), *name); err != nil {
		slog.Error("outbox-relay ends", "error", err)
		os.Exit(1)
	}
}

// run publishes until ctx ends.
func run(ctx context.Context, database, schema string, brokers []string, name string) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, Schema: schema})
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(brokers, kafka.NewConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	events, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		return err
	}
	defer events.Close()
	r, err := relay.New(relay.Config{Queue: store, Publisher: events, Name: name})
	if err != nil {
		return err
	}
	slog.Info("outbox-relay runs", "brokers", brokers)
	return r.Run(ctx)
}
