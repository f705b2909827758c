package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/rabbitmq"
)

// sources are the brokers that check can ask.
func sources() []cli.Source {
	return []cli.Source{
		{
			Flag: "kafka", Usage: "compare windows with the retention of topics, and look at min.insync.replicas: the brokers' addresses, separated by commas; for TLS tls://host:port",
			Find: func(source string) (string, bool) {
				if !strings.HasPrefix(source, "kafka group ") {
					return "", false
				}
				_, topic, ok := strings.Cut(source, ", topic ")
				return topic, ok
			},
			Check: func(ctx context.Context, address, topic string, window time.Duration) error {
				return askKafka(ctx, address, func(client sarama.Client) error { return kafka.CheckWindow(client, topic, window) })
			},
			Warn: func(ctx context.Context, address, topic string) error {
				return askKafka(ctx, address, func(client sarama.Client) error { return kafka.CheckReplicas(client, topic) })
			},
			Reread:    rereadKafka,
			Published: publishedKafka,
		},
		{
			Flag: "sqs", Usage: "compare windows with the retention of queues: the endpoint, such as https://sqs.eu-central-1.amazonaws.com; credentials from AWS_ACCESS_KEY_ID",
			Find: func(source string) (string, bool) { return strings.CutPrefix(source, "sqs queue ") },
			Check: func(ctx context.Context, address, queue string, window time.Duration) error {
				return awssqs.CheckWindow(ctx, sqsClient(address), queue, window)
			},
		},
		{
			Flag: "amqp", Usage: "compare windows with the x-message-ttl of RabbitMQ's queues: amqp://user:password@host/vhost",
			Find: func(source string) (string, bool) { return strings.CutPrefix(source, "rabbitmq queue ") },
			Check: func(ctx context.Context, address, queue string, window time.Duration) error {
				if _, err := url.Parse(address); err != nil { // its error has the password
					return cli.Usage(errors.New("--amqp: want amqp://user:password@host:port/vhost, with %-escapes in the password"))
				}
				return rabbitmq.CheckWindow(ctx, rabbitmq.Dial(address, amqp.Config{}), queue, window)
			},
		},
	}
}

func askKafka(ctx context.Context, address string, ask func(sarama.Client) error) error {
	return unlessEnded(ctx, func() error {
		client, err := kafkaClient(address)
		if err != nil {
			return err
		}
		defer client.Close()
		return ask(client)
	})
}

// unlessEnded returns the result of f, or that of ctx if it ends before, because sarama does not look at a context.
func unlessEnded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("--kafka: no answer: %w", ctx.Err())
	}
}

func kafkaClient(address string) (sarama.Client, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_4_0_0
	cfg.ClientID = "txonce"
	cfg.Metadata.AllowAutoTopicCreation = false // a command that reads creates no topic
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Return.Errors = true // a broker that is away must not look like offsets without messages
	addresses, secure := strings.CutPrefix(address, "tls://")
	if secure {
		cfg.Net.TLS.Enable, cfg.Net.TLS.Config = true, &tls.Config{MinVersion: tls.VersionTLS12}
	}
	client, err := sarama.NewClient(strings.FieldsFunc(addresses,
		func(r rune) bool { return r == ',' || r == ' ' }), cfg)
	if err != nil {
		return nil, fmt.Errorf("--kafka: %w", err)
	}
	return client, nil
}

// sqsClient takes credentials only from the environment, because the SDK's package for its other sources is large.
func sqsClient(endpoint string) *sqs.Client {
	region := os.Getenv("AWS_REGION")
	if _, rest, ok := strings.Cut(endpoint, "://sqs."); ok && region == "" {
		region, _, _ = strings.Cut(rest, ".")
	}
	if region == "" {
		region = "us-east-1"
	}
	var keys aws.CredentialsProvider = aws.AnonymousCredentials{} // of servers that only speak SQS's protocol
	if id := os.Getenv("AWS_ACCESS_KEY_ID"); id != "" {
		keys = credentials.NewStaticCredentialsProvider(id, os.Getenv("AWS_SECRET_ACCESS_KEY"),
			os.Getenv("AWS_SESSION_TOKEN"))
	}
	return sqs.New(sqs.Options{BaseEndpoint: aws.String(endpoint), Region: region, Credentials: keys})
}
