package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/outbox"
)

// open connects to the broker, makes the topic of the stream, and begins to read it. missing is the topic of what
// waits.
func (w *world) open(ctx context.Context) (p outbox.Publisher, missing string, closeBroker func(), err error) {
	missing = w.name + "_missing"
	switch w.broker {
	case "kafka":
		p, closeBroker, err = w.openKafka()
	case "rabbitmq":
		p, closeBroker, err = w.openRabbitMQ()
	case "fake":
		p, closeBroker = fake{w}, func() {}
	default:
		err = fmt.Errorf("no broker %q", w.broker)
	}
	return counted{p, w}, missing, closeBroker, err
}

// counted counts calls.
type counted struct {
	outbox.Publisher
	world *world
}

// Publish implements outbox.Publisher.
func (c counted) Publish(ctx context.Context, msgs []outbox.Message) []error {
	c.world.calls.Add(1)
	if c.world.kind == "key" {
		pause(ctx, 20*time.Millisecond)
	}
	return c.Publisher.Publish(ctx, msgs)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fake is a broker that confirms at once.
type fake struct{ world *world }

var errRefused = errors.New("strangers: refused")

// Publish implements outbox.Publisher.
func (f fake) Publish(ctx context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	slow := false
	for i, m := range msgs {
		switch bad := strings.HasSuffix(m.Topic, "_missing"); {
		case bad && f.world.kind == "topic":
			errs[i] = &outbox.TopicError{Err: errRefused}
		case bad && f.world.kind == "refused":
			errs[i] = errRefused
		case bad && f.world.kind == "slow":
			slow = true
		default:
			f.world.arrive(m.ID)
		}
	}
	if slow {
		pause(ctx, 2*time.Second)
	}
	return errs
}

func (w *world) openKafka() (outbox.Publisher, func(), error) {
	client, err := sarama.NewClient(strings.Split(os.Getenv("TXONCE_KAFKA"), ","), kafka.NewConfig())
	if err != nil {
		return nil, nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, nil, err
	}
	if err := admin.CreateTopic(w.name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1},
		false); err != nil {
		return nil, nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, nil, err
	}
	var part sarama.PartitionConsumer
	for range 50 {
		if part, err = consumer.ConsumePartition(w.name, 0, sarama.OffsetOldest); err == nil {
			break
		}
		pause(context.Background(), 100*time.Millisecond)
	}
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for m := range part.Messages() {
			for _, h := range m.Headers {
				if string(h.Key) == outbox.HeaderID {
					w.arrive(string(h.Value))
				}
			}
		}
	}()
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	return p, func() {
		_ = p.Close()
		_ = part.Close()
		_ = admin.DeleteTopic(w.name)
		_ = client.Close()
	}, err
}

func (w *world) openRabbitMQ() (outbox.Publisher, func(), error) {
	url := os.Getenv("TXONCE_RABBITMQ")
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, nil, err
	}
	if _, err := ch.QueueDeclare(w.name, true, false, false, false, nil); err != nil {
		return nil, nil, err
	}
	deliveries, err := ch.Consume(w.name, "", true, true, false, false, nil)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for d := range deliveries {
			w.arrive(d.MessageId)
		}
	}()
	p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: rabbitmq.Dial(url, amqp.Config{})})
	return p, func() {
		_ = p.Close()
		_, _ = ch.QueueDelete(w.name, false, false, false)
		_ = conn.Close()
	}, err
}
