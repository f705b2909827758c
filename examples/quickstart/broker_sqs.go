package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/outbox"
)

// visibility is the visibility timeout of orders. SQS's default is 30 s.
const visibility = 4 * time.Second

// sqsBroker is a standard queue of orders, which delivers in any order and sometimes twice, and a FIFO queue of events.
type sqsBroker struct {
	client         *sqs.Client
	endpoint       string
	orders, events string // names
	urls           []string
	total          int64
}

func newSQS(endpoint, name string) *sqsBroker {
	return &sqsBroker{client: sqsClient(endpoint), endpoint: endpoint, orders: name, events: name + "_events.fifo"}
}

// sqsClient returns a client for an emulator of SQS. In production use the SDK's config.LoadDefaultConfig.
func sqsClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
}

// Open implements broker.
func (b *sqsBroker) Open(ctx context.Context) error {
	seconds := strconv.Itoa(int(visibility.Seconds()))
	for _, q := range []sqs.CreateQueueInput{
		{QueueName: &b.orders, Attributes: map[string]string{"VisibilityTimeout": seconds, "MessageRetentionPeriod": "86400"}},
		{QueueName: &b.events, Attributes: map[string]string{"FifoQueue": "true", "VisibilityTimeout": "30"}},
	} {
		out, err := b.client.CreateQueue(ctx, &q)
		if err != nil {
			return fmt.Errorf("connect to SQS at %s: %w", b.endpoint, err)
		}
		b.urls = append(b.urls, *out.QueueUrl)
	}
	return nil
}

// Produce implements broker.
func (b *sqsBroker) Produce(ctx context.Context, p *plan, progress func(done int)) error {
	sending, ctx := errgroup.WithContext(ctx)
	sending.SetLimit(8)
	var mu sync.Mutex // progress is not for concurrent use
	sent := 0
	for batch := range slices.Chunk(p.deliveries, 10) {
		sending.Go(func() error {
			if err := b.send(ctx, p, batch); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if sent += len(batch); sent%1000 == 0 {
				progress(sent)
			}
			return nil
		})
	}
	b.total = int64(len(p.deliveries))
	return sending.Wait()
}

func (b *sqsBroker) send(ctx context.Context, p *plan, batch []delivery) error {
	entries := make([]types.SendMessageBatchRequestEntry, len(batch))
	for i, d := range batch {
		entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(p.Order(int(d.message)).JSON())),
		}
	}
	out, err := b.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &b.urls[0], Entries: entries})
	if err == nil && len(out.Successful) != len(batch) {
		err = fmt.Errorf("%d of %d messages were refused", len(batch)-len(out.Successful), len(batch))
	}
	return err
}

// Finished subtracts what is left in the queue: visible, in flight and delayed messages.
func (b *sqsBroker) Finished(ctx context.Context) ([]int64, error) {
	left, err := b.left(ctx, b.urls[0])
	if err != nil {
		return nil, fmt.Errorf("count the orders that are left: %w", err)
	}
	return []int64{b.total - left}, nil
}

func (b *sqsBroker) left(ctx context.Context, url string) (left int64, err error) {
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	out, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := strconv.ParseInt(out.Attributes[string(name)], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s is %q", name, out.Attributes[string(name)])
		}
		left += n
	}
	return left, nil
}

// Ends implements broker.
func (b *sqsBroker) Ends() []int64 { return []int64{b.total} }

// Events receives and deletes all events, and then passes them to take sorted by sequence number, because an ElasticMQ
// that keeps its messages on disk sometimes delivers a group's messages in another order.
func (b *sqsBroker) Events(ctx context.Context, take func(id, customer string, payload []byte)) error {
	var all []types.Message
	for {
		some, err := b.someEvents(ctx)
		if err != nil {
			return fmt.Errorf("read the events: %w", err)
		}
		all = append(all, some...)
		if left, err := b.left(ctx, b.urls[1]); err != nil || left == 0 {
			if err != nil {
				return fmt.Errorf("count the events that are left: %w", err)
			}
			break
		}
	}
	number := func(m types.Message, name types.MessageSystemAttributeName) int64 {
		// SQS's own sequence numbers overflow this, but there the timestamps differ
		n, _ := strconv.ParseInt(m.Attributes[string(name)], 10, 64)
		return n
	}
	slices.SortStableFunc(all, func(m, n types.Message) int {
		return cmp.Or(
			cmp.Compare(number(m, types.MessageSystemAttributeNameSentTimestamp),
				number(n, types.MessageSystemAttributeNameSentTimestamp)),
			cmp.Compare(number(m, types.MessageSystemAttributeNameSequenceNumber),
				number(n, types.MessageSystemAttributeNameSequenceNumber)))
	})
	for _, m := range all {
		take(aws.ToString(m.MessageAttributes[outbox.HeaderID].StringValue), m.Attributes["MessageGroupId"],
			[]byte(aws.ToString(m.Body)))
	}
	return nil
}

// someEvents reads the events that can be received now, with several readers for speed.
func (b *sqsBroker) someEvents(ctx context.Context) (some []types.Message, err error) {
	var mu sync.Mutex
	reading, ctx := errgroup.WithContext(ctx)
	for range 8 {
		reading.Go(func() error {
			for {
				msgs, err := b.readEvents(ctx)
				if err != nil || len(msgs) == 0 {
					return err
				}
				mu.Lock()
				some = append(some, msgs...)
				mu.Unlock()
			}
		})
	}
	return some, reading.Wait()
}

func (b *sqsBroker) readEvents(ctx context.Context) ([]types.Message, error) {
	out, err := b.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &b.urls[1], MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			"MessageGroupId", "SentTimestamp",
			"SequenceNumber",
		},
	})
	if err != nil || len(out.Messages) == 0 {
		return nil, err
	}
	gone := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
	for i, m := range out.Messages {
		gone[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	deleted, err := b.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &b.urls[1], Entries: gone})
	if err == nil && len(deleted.Failed) > 0 {
		err = fmt.Errorf("%d events could not be deleted", len(deleted.Failed))
	}
	return out.Messages, err
}

// Place implements broker.
func (b *sqsBroker) Place() place {
	return place{Addresses: []string{b.endpoint}, Orders: b.orders, Events: b.events}
}

// String implements broker.
func (b *sqsBroker) String() string { return "queue " + b.orders }

// Close implements broker.
func (b *sqsBroker) Close(ctx context.Context) error {
	var errs []error
	for _, url := range b.urls {
		if _, err := b.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			errs = append(errs, fmt.Errorf("delete queue %s: %w", url, err))
		}
	}
	return errors.Join(errs...)
}
