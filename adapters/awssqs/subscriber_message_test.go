package awssqs_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestMessagesThatCannotBeReadAreParked(t *testing.T) {
	text := func(v string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	inBubble(t, func(t *testing.T) {
		store := consumertest.NewStoreOn(deduptest.NewDatabase())
		c, err := consumer.New(consumer.Config[*deduptest.Tx]{
			Name: "billing", Store: store, Key: consumer.HeaderKey("id"),
			Handle: func(_ context.Context, tx *deduptest.Tx,
				m *consumer.Message,
			) error {
				return tx.Add(string(m.Payload))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newStall(t, awssqstest.Config{}, false, nil)
		for _, m := range []map[string]types.MessageAttributeValue{
			{"id": text("1"), "txonce-encoding": text("base64")},
			{"id": text("2"), "txonce-encoding": text("rot13")},
			{"id": text("3"), "txonce-headers": text("no JSON")},
			{"id": text("4")},
		} {
			if _, err := s.SendMessage(t.Context(),
				&sqs.SendMessageInput{
					QueueUrl: &s.url, MessageBody: aws.String("plain text"),
					MessageAttributes: m,
				}); err != nil {
				t.Fatal(err)
			}
		}
		s.start(awssqs.SubscriberConfig{Processor: c}, nil)
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) != 3 {
			t.Errorf("%d letters, want 3", len(letters))
		}
		for _, l := range letters {
			if string(l.Message.Payload) != "plain text" || !strings.Contains(l.Error, "txonce-") ||
				l.Record.Key.ID == "4" {
				t.Errorf("parked %q of key %q with %q", l.Message.Payload, l.Record.Key.ID, l.Error)
			}
		}
	})
}

func TestOrderByOnAStandardQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		running := map[byte]int{}
		s.send("", "a1", "b1", "a2", "b2", "a3", "c1")
		most := 0
		s.start(awssqs.SubscriberConfig{OrderBy: func(m *consumer.Message) string { return string(m.Payload[:1]) }},
			func(_ context.Context, msg *consumer.Message) error {
				s.mu.Lock()
				key := msg.Payload[0]
				if running[key]++; running[key] > 1 || msg.OrderingKey != string(key) {
					t.Errorf("%d of key %q (%q) at once", running[key], key, msg.OrderingKey)
				}
				all := 0
				for _, n := range running {
					all += n
				}
				most = max(most, all)
				s.mu.Unlock()
				elapse(time.Second)
				s.mu.Lock()
				defer s.mu.Unlock()
				running[key]--
				return nil
			})
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		if most != 3 {
			t.Errorf("%d were handled at once; want one of each key", most)
		}
	})
}

// A message that OrderBy does not return for is Malformed, and the others are handled.
func TestOrderByThatDoesNotReturn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.send("", "a", "panics", "ends", "b")
		malformed := map[string]error{}
		s.start(awssqs.SubscriberConfig{OrderBy: func(m *consumer.Message) string {
			switch string(m.Payload) {
			case "panics":
				panic("broken")
			case "ends":
				runtime.Goexit()
			}
			return string(m.Payload)
		}}, func(_ context.Context, msg *consumer.Message) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			malformed[string(msg.Payload)] = msg.Malformed
			return nil
		})
		elapse(time.Minute)
		s.stopped()
		s.left(0)
		for payload, says := range map[string]string{
			"panics": "OrderBy panicked: ",
			"ends":   "OrderBy ended its goroutine",
		} {
			if err := malformed[payload]; err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: Malformed is %v; want %q in it", payload, err, says)
			}
		}
		if len(malformed) != 4 || malformed["a"] != nil || malformed["b"] != nil {
			t.Errorf("handled %v", malformed)
		}
	})
}

// SQS orders a FIFO queue by message group. A system that forwards messages may keep the attributes and choose another
// group: then a message that failed must hold back the later ones of its group, not those with its attribute.
func TestAGroupIsTheOrderWhateverTheAttributeSays(t *testing.T) {
	long := strings.Repeat("order", 40) // its group is a hash
	for _, c := range []struct{ queue, group, attribute, want string }{
		{"q.fifo", "account-7", "order-1", "account-7"},
		{"q.fifo", "account-7", "", "account-7"},
		{"q.fifo", "order-1", "order-1", "order-1"},
		{"q.fifo", awssqs.GroupID(long), long, long},
		{"q.fifo", awssqs.GroupID(""), "", ""}, // a Publisher's message without a key
		{"q", "tenant", "order-1", "order-1"},
		{"q", "", "order-1", "order-1"},
	} {
		raw := types.Message{Body: aws.String("1"), Attributes: map[string]string{"MessageGroupId": c.group}}
		if c.attribute != "" {
			raw.MessageAttributes = map[string]types.MessageAttributeValue{"txonce-key": {DataType: aws.String("String"), StringValue: &c.attribute}}
		}
		if m := awssqs.ToMessage(c.queue, raw); m.OrderingKey != c.want || m.Malformed != nil {
			t.Errorf("queue %s, group %s, attribute %q: Key %q, want %q (%v)", c.queue, c.group, c.attribute,
				m.OrderingKey, c.want, m.Malformed)
		}
	}
}
