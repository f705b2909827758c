package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
)

const (
	concurrency = 4 // concurrent batches of a subscriber
	maxBatch    = 100
)

// A kind is a type of broker.
type kind struct {
	name     string
	messages int // a backlog that takes a second or two
	open     func(ctx context.Context, name string) (broker, error)
}

// broker is the queue or topic of one measurement.
type broker interface {
	fill(ctx context.Context, n int) error
	subscriber(p consumer.Processor) (interface{ Run(context.Context) error }, error)
	close(ctx context.Context) error
}

var kinds = []kind{
	{"Kafka", 60_000, openKafka},
	{"SQS standard (ElasticMQ)", 10_000, openSQS(map[string]string{})},
	{"SQS FIFO", 10_000, openSQS(map[string]string{"FifoQueue": "true"})},
	{"RabbitMQ classic", 30_000, openRabbitMQ(rabbitmq.QueueSpec{})},
	{"RabbitMQ quorum", 30_000, openRabbitMQ(rabbitmq.QueueSpec{Quorum: true})},
}

// body begins with the ID of a message.
func body(i int) string {
	return fmt.Sprintf(`{"id":"%s-%013d","amount":%d,"note":%q}`, prefix(0), i, i, strings.Repeat("x", 100))
}

// idOf returns the ID in a body.
func idOf(body []byte) string { return string(body[len(`{"id":"`):][:len("way-00-0000000000000")]) }

// kafkaTopic is a topic with eight partitions.
type kafkaTopic struct {
	name   string
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func openKafka(_ context.Context, name string) (broker, error) {
	client, err := sarama.NewClient(kafkaAddresses(), kafka.NewConfig())
	if err != nil {
		return nil, fmt.Errorf("TXONCE_KAFKA (.services/env has it): %w", err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	return &kafkaTopic{name, client, admin}, admin.CreateTopic(name,
		&sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1}, false)
}

func kafkaAddresses() []string { return strings.Split(os.Getenv("TXONCE_KAFKA"), ",") }

func (k *kafkaTopic) fill(_ context.Context, n int) error {
	producer, err := sarama.NewSyncProducerFromClient(k.client)
	if err != nil {
		return err
	}
	defer producer.Close()
	for from := 0; from < n; from += 1000 {
		var msgs []*sarama.ProducerMessage
		for i := from; i < min(n, from+1000); i++ {
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: k.name, Key: sarama.StringEncoder(strconv.Itoa(i)),
				Value: sarama.StringEncoder(body(i)),
			})
		}
		if err := producer.SendMessages(msgs); err != nil {
			return err
		}
	}
	return nil
}

func (k *kafkaTopic) subscriber(p consumer.Processor) (interface{ Run(context.Context) error }, error) {
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: k.client, Group: k.name, Topics: []string{k.name},
		Processor: p, MaxBatch: maxBatch,
	})
}

func (k *kafkaTopic) close(context.Context) error {
	return errors.Join(k.admin.DeleteTopic(k.name), k.client.Close())
}

type sqsQueue struct {
	client *sqs.Client
	url    string
	fifo   bool
}

func openSQS(attributes map[string]string) func(context.Context, string) (broker, error) {
	return func(ctx context.Context, name string) (broker, error) {
		client := sqs.New(sqs.Options{
			BaseEndpoint: aws.String(os.Getenv("TXONCE_SQS")), Region: "us-east-1",
			Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
		})
		_, fifo := attributes["FifoQueue"]
		if fifo {
			name += ".fifo"
		}
		out, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			return nil, fmt.Errorf("TXONCE_SQS: %w", err)
		}
		return &sqsQueue{client, *out.QueueUrl, fifo}, nil
	}
}

func (q *sqsQueue) fill(ctx context.Context, n int) error {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	sending, ctx := errgroup.WithContext(ctx)
	sending.SetLimit(8)
	for chunk := range slices.Chunk(all, 10) {
		sending.Go(func() error {
			entries := make([]types.SendMessageBatchRequestEntry, len(chunk))
			for j, i := range chunk {
				entries[j] = types.SendMessageBatchRequestEntry{
					Id:          aws.String(strconv.Itoa(j)),
					MessageBody: aws.String(body(i)),
				}
				if q.fifo {
					entries[j].MessageGroupId, entries[j].MessageDeduplicationId = aws.String(strconv.Itoa(i%500)),
						aws.String(strconv.Itoa(i))
				}
			}
			out, err := q.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
			if err == nil && len(out.Failed) > 0 {
				err = fmt.Errorf("%d messages were refused", len(out.Failed))
			}
			return err
		})
	}
	return sending.Wait()
}

func (q *sqsQueue) subscriber(p consumer.Processor) (interface{ Run(context.Context) error }, error) {
	return awssqs.NewSubscriber(awssqs.SubscriberConfig{
		Client: q.client, Queue: q.url, Processor: p,
		Concurrency: concurrency, MaxBatch: maxBatch,
	})
}

func (q *sqsQueue) close(ctx context.Context) error {
	_, err := q.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &q.url})
	return err
}

type rabbitQueue struct {
	name string
	spec rabbitmq.QueueSpec
	conn *amqp.Connection
	ch   *amqp.Channel
}

func openRabbitMQ(spec rabbitmq.QueueSpec) func(context.Context, string) (broker, error) {
	return func(_ context.Context, name string) (broker, error) {
		conn, err := amqp.Dial(os.Getenv("TXONCE_RABBITMQ"))
		if err != nil {
			return nil, fmt.Errorf("TXONCE_RABBITMQ: %w", err)
		}
		ch, err := conn.Channel()
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		args := amqp.Table{}
		if spec.Quorum {
			args["x-queue-type"] = "quorum"
		}
		_, err = ch.QueueDeclare(name, true, false, false, false, args)
		return &rabbitQueue{name, spec, conn, ch}, errors.Join(err, ch.Confirm(false))
	}
}

func (q *rabbitQueue) fill(ctx context.Context, n int) error {
	for i := range n {
		confirmation, err := q.ch.PublishWithDeferredConfirmWithContext(ctx, "", q.name, true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: strconv.Itoa(i), Body: []byte(body(i))})
		if err != nil {
			return err
		}
		if i%1000 == 999 || i == n-1 {
			if ok, err := confirmation.WaitContext(ctx); err != nil || !ok {
				return fmt.Errorf("message %d is not confirmed: %w", i, err)
			}
		}
	}
	return nil
}

func (q *rabbitQueue) subscriber(p consumer.Processor) (interface{ Run(context.Context) error }, error) {
	return rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial: rabbitmq.Dial(os.Getenv("TXONCE_RABBITMQ"), amqp.Config{}), Queue: q.name, Spec: q.spec, Processor: p,
		Concurrency: concurrency, MaxBatch: maxBatch,
	})
}

func (q *rabbitQueue) close(context.Context) error {
	_, err := q.ch.QueueDelete(q.name, false, false, false)
	return errors.Join(err, q.conn.Close())
}
