package awssqs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/internal/test/features"
	"github.com/txonce/txonce/internal/test/testlog"
	"github.com/txonce/txonce/outbox"
)

const restartCase = "the broker restarts"

// TestSubscriber runs the suite on awssqstest.Server and on ElasticMQ, with standard and with FIFO queues.
func TestSubscriber(t *testing.T) {
	t.Parallel()
	for _, server := range []struct {
		name string
		open func(t *testing.T) func(t *testing.T) site
		run  func(t *testing.T, c func(*testing.T))
		real bool
	}{
		{name: "awssqstest", open: func(*testing.T) func(*testing.T) site { return fakeSite }, run: synctest.Test},
		{name: "elasticmq", open: sharedOrOwnElasticMQ, run: sideBySide, real: true},
	} {
		if server.real && testing.Short() {
			continue
		}
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			open := server.open(t)
			for _, fifo := range []bool{false, true} {
				name, can := "standard", features.SQSStandard.Features
				if fifo {
					name, can = "fifo", features.SQSFIFO.Features
				}
				if why := testsqs.NoOwn(); server.real && why != "" {
					can.DoesNotApply = map[string]string{restartCase: why}
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					consumertest.TestSubscriber(t, consumertest.SubscriberHarness{
						New:      func(t *testing.T) consumertest.Broker { return newSuiteBroker(t, open(t), fifo) },
						Features: can,
						Run:      server.run,
					})
				})
			}
		})
	}
}

// sideBySide runs a case beside others.
func sideBySide(t *testing.T, c func(*testing.T)) {
	t.Parallel()
	c(t)
}

// site is an SQS, and how to restart it.
type site struct {
	creator
	visibility time.Duration
	restart    func(ctx context.Context) error
}

// lasting is the visibility timeout where it must not expire. A busy machine may pause a process for seconds.
const lasting = 15 * time.Second

// fakeSite is an awssqstest.Server of the test's own. A restart cuts its connections for a while.
func fakeSite(*testing.T) site {
	s := awssqstest.NewServer(awssqstest.Config{Shuffle: true})
	return site{creator: s, visibility: lasting, restart: func(context.Context) error {
		s.Down()
		<-time.After(time.Second)
		s.Up()
		return nil
	}}
}

// sharedOrOwnElasticMQ gives each case the shared server, unless the case restarts it. Cases that do use a second
// server, one after the other.
func sharedOrOwnElasticMQ(t *testing.T) func(t *testing.T) site {
	var using sync.Mutex
	own := sync.OnceValue(func() *testsqs.Own { return testsqs.Start(t) })
	return func(t *testing.T) site {
		if !strings.HasSuffix(t.Name(), strings.ReplaceAll(restartCase, " ", "_")) {
			return site{creator: testsqs.Server(t), visibility: lasting}
		}
		using.Lock()
		t.Cleanup(using.Unlock)
		e := own()
		return site{creator: testsqs.Client(e.Endpoint), visibility: 5 * time.Second, restart: func(ctx context.Context) error {
			if err := e.Stop(ctx); err != nil {
				return err
			}
			return e.Start(ctx)
		}}
	}
}

// suiteBroker is one queue as a consumertest.Broker.
type suiteBroker struct {
	site
	t         *testing.T
	url       string
	publisher *awssqs.Publisher
	trace     *driver.SourceTrace
	changing  sync.RWMutex // held by Revoke, and read while a subscriber changes a visibility

	mu       sync.Mutex
	receipts map[string]string // the newest, by message
	ended    map[string]bool   // receipts that Revoke has ended, until the message is received again
	clients  []*suiteClient
}

var (
	_ consumertest.Broker    = (*suiteBroker)(nil)
	_ consumertest.Restarter = (*suiteBroker)(nil)
	_ consumertest.Revoker   = (*suiteBroker)(nil)
	_ consumertest.Tracer    = (*suiteBroker)(nil)
)

func newSuiteBroker(t *testing.T, s site, fifo bool) *suiteBroker {
	_, url := makeQueue(t, s, fifo, nil)
	publisher, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: s})
	if err != nil {
		t.Fatal(err)
	}
	return &suiteBroker{
		site: s, t: t, url: url, publisher: publisher, receipts: map[string]string{},
		ended: map[string]bool{},
	}
}

// Publish implements consumertest.Broker. A call of the Publisher takes one message of a key.
func (b *suiteBroker) Publish(ctx context.Context, msgs ...consumer.Message) error {
	for len(msgs) > 0 {
		var call []outbox.Message
		keys := map[string]bool{}
		for len(msgs) > 0 && !keys[msgs[0].OrderingKey] {
			m := msgs[0]
			if m.OrderingKey != "" {
				keys[m.OrderingKey] = true
			}
			call = append(call, outbox.Message{
				ID: fmt.Sprintf("%016x", rand.Uint64()), Topic: b.url, OrderingKey: m.OrderingKey, Payload: m.Payload,
				Headers: m.Headers,
			})
			msgs = msgs[1:]
		}
		if err := errors.Join(b.publisher.Publish(ctx, call)...); err != nil {
			return err
		}
	}
	return nil
}

// suiteClient is the client of one Subscriber.
type suiteClient struct {
	*suiteBroker
	revoked atomic.Bool
}

// ReceiveMessage records the receipt handles for Revoke. A client that has lost its messages receives nothing more: it
// might take them again, before any other client.
func (b *suiteClient) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput,
	opts ...func(*sqs.Options),
) (*sqs.ReceiveMessageOutput, error) {
	if b.revoked.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out, err := b.site.ReceiveMessage(ctx, in, opts...)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range out.Messages {
			delete(b.ended, b.receipts[*m.MessageId])
			b.receipts[*m.MessageId] = *m.ReceiptHandle
		}
	}
	return out, err
}

// ChangeMessageVisibilityBatch is not forwarded while it contains a receipt that Revoke has ended: until another client
// receives the message, ElasticMQ would accept that receipt and hide the message again. On a busy machine a heartbeat
// may come before the other client.
func (b *suiteClient) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput,
	opts ...func(*sqs.Options),
) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	for {
		b.changing.RLock() // Revoke comes before or after, not between
		b.mu.Lock()
		ended := slices.ContainsFunc(in.Entries, func(e types.ChangeMessageVisibilityBatchRequestEntry) bool { return b.ended[*e.ReceiptHandle] })
		b.mu.Unlock()
		if !ended {
			defer b.changing.RUnlock()
			return b.site.ChangeMessageVisibilityBatch(ctx, in, opts...)
		}
		b.changing.RUnlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Subscriber implements consumertest.Broker.
func (b *suiteBroker) Subscriber(p consumer.Processor, grace time.Duration) (consumertest.Subscriber, error) {
	client := &suiteClient{suiteBroker: b}
	b.mu.Lock()
	b.clients = append(b.clients, client)
	b.mu.Unlock()
	return awssqs.NewSubscriber(awssqs.SubscriberConfig{
		Client: client, Queue: b.url, Processor: p, Grace: grace, VisibilityTimeout: b.visibility,
		WaitTime: time.Second, Trace: b.trace, Logger: testlog.New(b.t).Logger(),
	})
}

// Left implements consumertest.Broker.
func (b *suiteBroker) Left(ctx context.Context) (int, error) {
	out, err := b.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &b.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		return 0, err
	}
	left := 0
	for _, name := range []string{
		"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
		"ApproximateNumberOfMessagesDelayed",
	} {
		n, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		left += n
	}
	return left, nil
}

// Trace implements consumertest.Tracer.
func (b *suiteBroker) Trace(trace *driver.SourceTrace) { b.trace = trace }

// Restart implements consumertest.Restarter.
func (b *suiteBroker) Restart(ctx context.Context) error { return b.restart(ctx) }

// Revoke implements consumertest.Revoker: all visibility timeouts run out.
func (b *suiteBroker) Revoke(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.receipts) == 0 {
		return errors.New("nothing was received")
	}
	for _, c := range b.clients {
		c.revoked.Store(true)
	}
	for id, receipt := range b.receipts {
		b.ended[receipt] = true
		if _, err := b.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{
			QueueUrl: &b.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: &id, ReceiptHandle: &receipt}},
		}); err != nil {
			return err
		}
	}
	return nil
}
