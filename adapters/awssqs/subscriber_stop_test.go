package awssqs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
)

// TestRunEndsWithoutTheServer: Run returns within Grace and the documented 15 seconds, whichever call waits for an
// answer of SQS.
func TestRunEndsWithoutTheServer(t *testing.T) {
	const grace, bound = 5 * time.Second, 15 * time.Second
	for _, server := range []struct {
		name  string
		leave func(s *stall) (back func())
	}{
		{"refuses connections", func(s *stall) func() { s.Down(); return s.Up }},
		{"does not answer", func(s *stall) func() { return s.Pause() }},
	} {
		for _, handler := range []struct {
			name  string
			blind bool // it runs until it is cancelled, when the server is gone
		}{
			{"answers are waiting", false},
			{"a handler is running", true},
		} {
			t.Run(server.name+", "+handler.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					s := newStall(t, awssqstest.Config{}, false, map[string]string{"VisibilityTimeout": "3600"})
					for i := range 60 {
						s.send("", fmt.Sprint(i))
					}
					gone := make(chan struct{})
					s.start(awssqs.SubscriberConfig{Grace: grace, MaxUnfinished: 40}, func(ctx context.Context, msg *consumer.Message) error {
						<-gone
						if handler.blind {
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
					elapse(30 * time.Second) // 40 are held
					back := server.leave(s)
					close(gone)
					elapse(time.Minute)
					ended := make(chan error, 1)
					began := time.Now()
					go func() { ended <- s.stop() }()
					select {
					case err := <-ended:
						if err != nil {
							t.Errorf("Run = %v", err)
						}
						t.Log("Run took", time.Since(began))
					case <-time.After(grace + bound):
						t.Errorf("Run has not returned %v after its context ended", grace+bound)
						back()
						<-ended
					}
				})
			})
		}
	}
}

// TestStopsAreNoAttempts: SQS counts each receive, and the messages that a stop gives back were received.
func TestStopsAreNoAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.send("", "a", "b")
		attempts := make(chan int, 10)
		sub, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{
			Client: s, Queue: s.name, Concurrency: 1, Grace: time.Second,
			Processor: process{s, func(ctx context.Context, msg *consumer.Message) error {
				if s.times("a")+s.times("b") > 5 {
					attempts <- msg.Attempt
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 6 { // the first five stop while one of the two is being handled, and the other waits
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := sub.Run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
			cancel()
		}
		s.left(0)
		for range 2 {
			if got := <-attempts; got != 1 {
				t.Errorf("Attempt %d after five stops in which no handler failed; want 1", got)
			}
		}
	})
}

// TestATenantIsNoOrder: the message group of a standard queue makes it a fair queue, and says nothing about order.
func TestATenantIsNoOrder(t *testing.T) {
	tenant := "tenant"
	for _, c := range []struct {
		name string
		cfg  awssqs.SubscriberConfig
		want string // Message.OrderingKey
	}{
		{"by default", awssqs.SubscriberConfig{}, ""},
		{"by key", awssqs.SubscriberConfig{OrderBy: awssqs.ByKey}, ""},
		{"where it is asked for", awssqs.SubscriberConfig{OrderBy: func(m *consumer.Message) string {
			return m.Raw.(types.Message).Attributes["MessageGroupId"]
		}}, tenant},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStall(t, awssqstest.Config{}, false, nil)
				if _, err := s.SendMessage(t.Context(),
					&sqs.SendMessageInput{
						QueueUrl: &s.url, MessageBody: &tenant,
						MessageGroupId: &tenant,
					}); err != nil {
					t.Fatal(err)
				}
				s.start(c.cfg, func(_ context.Context, msg *consumer.Message) error {
					if msg.OrderingKey != c.want {
						t.Errorf("Key %q; want %q", msg.OrderingKey, c.want)
					}
					return nil
				})
				elapse(time.Minute)
				s.stopped()
				s.left(0)
			})
		})
	}
}
