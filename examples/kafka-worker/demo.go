package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// orderCount is how many orders the demo places.
const orderCount = 10

// demo is what a worker of your own has no need for: it makes topics and tables, places orders and prints what happens.
type demo struct {
	pool            *pgxpool.Pool
	orders, charges string // topics, new for each run
	duplicates      atomic.Int64
}

func prepare(ctx context.Context, pool *pgxpool.Pool, client sarama.Client) (*demo, error) {
	run := time.Now().UTC().Format("20060102-150405.000000")
	d := &demo{pool: pool, orders: "orders-" + run, charges: "charges-" + run}
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS charges (order_id text, cents bigint)`); err != nil {
		return nil, err
	}
	// Each run has topics of its own. Without this the second run would be refused: another topic under the name "billing" may be
	// another service's. Say so once where a topic of yours has moved.
	if _, err := pool.Exec(ctx, `DELETE FROM txonce_sources WHERE consumer = 'billing'`); err != nil {
		return nil, err
	}
	client.Config().Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the 3 s that are the default
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(2 * time.Minute); ; { // a Kafka that stood still needs a moment until it makes topics again
		err := d.ready(client, admin)
		if err == nil {
			return d, nil
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// ready makes the topics, unless they are there, and looks whether each partition has a leader that knows it is: it asks where it ends.
func (d *demo) ready(client sarama.Client, admin sarama.ClusterAdmin) error {
	for _, topic := range []string{d.orders, d.charges} {
		err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return err
		}
	}
	err := client.RefreshMetadata(d.orders, d.charges)
	for _, topic := range []string{d.orders, d.charges} {
		for p := int32(0); p < 3 && err == nil; p++ {
			_, err = client.GetOffset(topic, p, sarama.OffsetNewest)
		}
	}
	return err
}

// id names order i of this run.
func (d *demo) id(i int) string { return fmt.Sprintf("%s/%d", d.orders, i) }

// trace prints what becomes of messages.
func (d *demo) trace() *consumer.Trace {
	return &consumer.Trace{
		Committed: func(_ context.Context, e consumer.Event) { fmt.Printf("charged    %s\n", e.Message.Payload) },
		Duplicate: func(_ context.Context, e consumer.Event) {
			d.duplicates.Add(1)
			fmt.Printf("duplicate  %s\n", e.Message.Payload)
		},
	}
}

// run places every order, and every other one twice, waits for their announcements, and tells the worker to stop.
func (d *demo) run(ctx context.Context, client sarama.Client, stop func()) error {
	defer stop()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	for i := range orderCount {
		for range 1 + i%2 {
			m := &sarama.ProducerMessage{
				Topic: d.orders, Key: sarama.StringEncoder(d.id(i)), Value: sarama.StringEncoder(fmt.Sprintf(`{"order_id": %q, "cents": %d}`, d.id(i), 100*i)),
			}
			if _, _, err := producer.SendMessage(m); err != nil {
				return err
			}
		}
	}
	announced, err := d.announced(ctx, client)
	if err != nil {
		return err
	}
	var charged, twice int
	err = d.pool.QueryRow(context.WithoutCancel(ctx), `SELECT count(DISTINCT order_id), count(*) - count(DISTINCT order_id) FROM charges WHERE order_id LIKE $1`,
		d.orders+"/%").Scan(&charged, &twice)
	fmt.Printf("%d orders, %d charged, %d charged twice, %d announced, %d deliveries were duplicates\n", orderCount, charged, twice, announced, d.duplicates.Load())
	return err
}

// announced reads the announcements until there is one for each order, and all duplicates have come as well. It does not count one that a
// relay has repeated.
func (d *demo) announced(ctx context.Context, client sarama.Client) (n int, err error) {
	reader, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	messages := make(chan *sarama.ConsumerMessage)
	for p := range int32(3) {
		partition, err := reader.ConsumePartition(d.charges, p, sarama.OffsetOldest)
		if err != nil {
			return 0, err
		}
		defer partition.AsyncClose()
		go func() {
			for m := range partition.Messages() {
				select {
				case messages <- m:
				case <-ctx.Done():
				}
			}
		}()
	}
	announced := map[string]bool{}
	for len(announced) < orderCount || d.duplicates.Load() < orderCount/2 {
		select {
		case m := <-messages:
			announced[string(m.Value)] = true
			fmt.Printf("announced  %s\n", m.Value)
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return len(announced), nil
		}
	}
	return len(announced), nil
}
