package wire

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/IBM/sarama"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/outbox"
)

const brokerLanes = 5

// openOutbox returns a world on PostgreSQL that has no lanes yet. No proxy is before its database.
func openOutbox(t *testing.T, seed uint64) (w *world, dsn string) {
	dsn = testdb.Tables(t, testdb.Postgres(t), postgresEffects)
	w = newWorld(t, seed, "pgx", dsn)
	w.name = dollars
	w.clean = w.pgxNode(t, dsn, &lane{}, pgxVariants[1])
	return w, dsn
}

// openKafka returns a world whose relays publish to Kafka through the proxy.
func openKafka(t *testing.T, seed uint64) *world {
	w, dsn := openOutbox(t, seed)
	brokers := testkafka.Brokers(t)
	topic := testkafka.Topic(t, brokers, 4)
	for i := range brokerLanes {
		l := newLane(fmt.Sprint("relay ", i), kafkaRelay, []string{"21"})
		l.proxy = wireproxy.ThroughKafka(t, brokers[0], wireproxy.Config{Decide: l.decide})
		cfg := kafka.NewConfig()
		cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, wireproxy.Dialer{Proxy: l.proxy}
		client, err := sarama.NewClient(brokers, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client, Logger: w.logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { publisher.Close() })
		w.relay(t, l, w.pgxStore(t, dsn, &lane{}), toTopic{publisher, topic})
	}
	w.published = func(context.Context) (map[string]int64, error) { return records(brokers, topic) }
	return w
}

// toTopic publishes each message to one topic.
type toTopic struct {
	outbox.Publisher
	topic string
}

func (p toTopic) Publish(ctx context.Context, msgs []outbox.Message) []error {
	own := make([]outbox.Message, len(msgs))
	for i, m := range msgs {
		own[i] = m
		own[i].Topic = p.topic
	}
	return p.Publisher.Publish(ctx, own)
}

// records returns the offsets of the records of a topic, from 1, by their content. Those of a key are in one partition.
func records(brokers []string, topic string) (map[string]int64, error) {
	cfg := sarama.NewConfig()
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		if end == 0 {
			continue
		}
		part, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for m := range part.Messages() {
			if payload := string(m.Value); all[payload] == 0 {
				all[payload] = m.Offset + 1
			}
			if m.Offset+1 >= end {
				break
			}
		}
		if err := part.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openRabbitMQ returns a world whose relays publish to RabbitMQ through the proxy.
func openRabbitMQ(t *testing.T, seed uint64) *world {
	w, dsn := openOutbox(t, seed)
	server := testrabbitmq.Server(t)
	queue := testrabbitmq.Queue(t, server, nil)
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	for i := range brokerLanes {
		l := newLane(fmt.Sprint("relay ", i), rabbitRelay, nil)
		l.proxy = wireproxy.ThroughAMQP(t, at.Host, wireproxy.Config{Decide: l.decide})
		through := *at
		through.Host = l.proxy.Addr().String()
		publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: rabbitmq.Dial(through.String(), amqp.Config{})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { publisher.Close() })
		w.relay(t, l, w.pgxStore(t, dsn, &lane{}), toTopic{publisher, queue})
	}
	w.published = newTap(t, server, queue).all
	return w
}

// tap reads a queue.
type tap struct {
	publisher
	channel *amqp.Channel
	queue   string
}

func newTap(t *testing.T, server, queue string) *tap {
	t.Helper()
	conn, err := amqp.Dial(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	messages, err := channel.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{publisher{at: map[string]int64{}}, channel, queue}
	go func() { // ends with the connection
		for m := range messages {
			p.add(string(m.Body))
		}
	}()
	return p
}

// all returns what was in the queue until now: it sends a message behind it, and waits for that one.
func (p *tap) all(ctx context.Context) (map[string]int64, error) {
	last := fmt.Sprint("last ", time.Now().UnixNano())
	if err := p.channel.PublishWithContext(ctx, "", p.queue, false, false, amqp.Publishing{Body: []byte(last)}); err != nil {
		return nil, err
	}
	for {
		if all, err := p.publisher.all(ctx); err != nil || all[last] > 0 {
			return all, err
		}
		if pause(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}
