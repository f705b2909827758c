package awssqs_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testlog"
)

// stall is one queue of an awssqstest.Server, and a Subscriber to it. It runs in a synctest bubble, with its own clock.
type stall struct {
	*awssqstest.Server
	t    *testing.T
	name string
	url  string
	fifo bool
	log  testlog.Log
	stop func() error // ends Run and returns what it returned

	mu      sync.Mutex
	handled map[string]int // by body
	order   []string
}

func newStall(t *testing.T, cfg awssqstest.Config, fifo bool, attributes map[string]string) *stall {
	t.Helper()
	s := &stall{Server: awssqstest.NewServer(cfg), t: t, name: "orders", fifo: fifo, handled: map[string]int{}}
	attributes = maps.Clone(attributes)
	if fifo {
		s.name = "orders.fifo"
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes["FifoQueue"] = "true"
	}
	out, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &s.name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	s.url = *out.QueueUrl
	return s
}

// send puts bodies into the queue; of a FIFO queue into this group.
func (s *stall) send(group string, bodies ...string) {
	s.t.Helper()
	for _, body := range bodies {
		in := &sqs.SendMessageInput{QueueUrl: &s.url, MessageBody: &body}
		if s.fifo {
			in.MessageGroupId, in.MessageDeduplicationId = &group, aws.String(fmt.Sprint(rand.Uint64()))
		}
		if _, err := s.SendMessage(s.t.Context(), in); err != nil {
			s.t.Fatal(err)
		}
	}
}

// process is a Processor that records its messages, and calls handle.
type process struct {
	*stall
	handle func(ctx context.Context, msg *consumer.Message) error
}

func (p process) Process(ctx context.Context, msg *consumer.Message) error {
	p.mu.Lock()
	p.handled[string(msg.Payload)]++
	p.order = append(p.order, string(msg.Payload))
	p.mu.Unlock()
	if p.handle == nil {
		return nil
	}
	return p.handle(ctx, msg)
}

// start runs a Subscriber, until stop.
func (s *stall) start(cfg awssqs.SubscriberConfig, handle func(ctx context.Context, msg *consumer.Message) error) {
	s.t.Helper()
	s.startWith(s.Server, cfg, handle)
}

func (s *stall) startWith(client awssqs.API, cfg awssqs.SubscriberConfig,
	handle func(ctx context.Context, msg *consumer.Message) error,
) {
	s.t.Helper()
	cfg.Client, cfg.Queue = client, s.name
	if cfg.Processor == nil {
		cfg.Processor = process{s, handle}
	}
	cfg.Logger = s.log.Logger()
	sub, err := awssqs.NewSubscriber(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- sub.Run(ctx) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-done })
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log("the log:\n" + s.log.String())
		}
	})
}

// stopped fails the test unless Run ends without an error.
func (s *stall) stopped() {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Errorf("Run = %v", err)
	}
}

// times is how often the message with this body was handed to the Processor.
func (s *stall) times(body string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled[body]
}

func (s *stall) left(want int) {
	s.t.Helper()
	if got := len(s.Stored(s.name)); got != want {
		s.t.Errorf("%d messages are in the queue; want %d", got, want)
	}
}

func elapse(d time.Duration) { <-time.After(d) }

// steal makes every message visible again that was received with one of these handles, as if its visibility timeout had
// expired.
func (s *stall) steal(handles ...string) {
	s.t.Helper()
	for _, h := range handles {
		if _, err := s.ChangeMessageVisibility(s.t.Context(),
			&sqs.ChangeMessageVisibilityInput{QueueUrl: &s.url, ReceiptHandle: &h}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// takeOver receives one message, as another process would.
func (s *stall) takeOver() types.Message {
	s.t.Helper()
	out, err := s.ReceiveMessage(s.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &s.url, VisibilityTimeout: 600})
	if err != nil || len(out.Messages) != 1 {
		s.t.Fatalf("received %v, %v; want one message", out, err)
	}
	return out.Messages[0]
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func receiptOf(msg *consumer.Message) string { return *msg.Raw.(types.Message).ReceiptHandle }
