// Package debezium shows that existing consumers understand what a relay publishes in the formats of package outbox:
// the CloudEvents SDK, and consumers of Debezium's outbox event router. It is a module of its own, so that txonce does
// not depend on them.
package debezium_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// patience is how long a test waits for an expected event.
const patience = 2 * time.Minute

// box is an outbox on PostgreSQL and a topic with one partition.
type box struct {
	pool    *pgxpool.Pool
	store   *pgxstore.Store
	brokers []string
	topic   string
}

func newBox(t *testing.T) *box {
	t.Helper()
	dsn := testdb.Schema(t, testdb.Postgres(t))
	db, err := sql.Open("pgx/v5", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Apply(t.Context(), db, "postgres", ""); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	brokers := testkafka.Brokers(t)
	return &box{pool: pool, store: store, brokers: brokers, topic: testkafka.Topic(t, brokers, 1)}
}

// enqueue commits msgs.
func (b *box) enqueue(t *testing.T, msgs ...outbox.Message) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.store.Enqueue(t.Context(), tx, msgs...) })
	if err != nil {
		t.Fatal(err)
	}
}

// relay publishes n messages to Kafka.
func (b *box) relay(t *testing.T, layout outbox.HeaderFormat, n int) {
	t.Helper()
	client, err := sarama.NewClient(b.brokers, kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	events, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	r, err := relay.New(relay.Config{Queue: b.store, Publisher: events, HeaderFormat: layout})
	if err != nil {
		t.Fatal(err)
	}
	published, err := r.RunOnce(t.Context())
	for end := time.Now().Add(patience); published < n && time.Now().Before(end); { // the broker may have paused
		<-time.After(100 * time.Millisecond)
		var more int
		more, err = r.RunOnce(t.Context())
		published += more
	}
	if err != nil || published != n {
		t.Fatalf("%d messages published, want %d (%v)", published, n, err)
	}
}

// read returns the first n records of the topic.
func (b *box) read(t *testing.T, n int) (records []*sarama.ConsumerMessage) {
	t.Helper()
	consumer, err := sarama.NewConsumer(b.brokers, kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(b.topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer partition.Close()
	for len(records) < n {
		select {
		case m := <-partition.Messages():
			records = append(records, m)
		case <-time.After(patience):
			t.Fatalf("%d records, want %d", len(records), n)
		}
	}
	return records
}
