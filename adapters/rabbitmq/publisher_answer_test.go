package rabbitmq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/outbox"
)

func TestPublisherAnswersEachMessage(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a2": rabbitmqtest.Nack, "b1": rabbitmqtest.NackButTake})
		f.want(f.publish("a1", "a2", "b1", "nowhere", "c1", "a3"), "", "plain: basic.nack", "plain: basic.nack",
			`topic: queue "nowhere"`, "", "")
		f.arrived("a", "a1", "a3")
		f.fate(nil)
		f.want(f.publish("a2"), "")
		f.dialled(1)
		if n := f.s.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestPublisherReturns: a return and its confirm come through two Go channels. If the Publisher saw only the confirm,
// the message would be lost.
func TestPublisherReturns(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		var ids, want []string
		for i := range 500 {
			ids, want = append(ids, fmt.Sprint("nowhere", i), fmt.Sprint("a", i)), append(want, "topic: NO_ROUTE", "")
		}
		f.want(f.publish(ids...), want...)
	})
}

// TestPublisherSameID: two outboxes may share a Publisher, and have messages with the same ID. A return does not show
// which of them came back, so both are sent again; the destination of each is known.
func TestPublisherSameID(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.want(f.send(outbox.Message{ID: "1", Topic: "a"}, outbox.Message{ID: "1", Topic: "nowhere"},
			outbox.Message{ID: "1", Topic: "b"}), "", "topic: NO_ROUTE", "")
	})
}

func TestPublisherConfirmsOutOfOrder(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{
			"a1": rabbitmqtest.Withhold, "a3": rabbitmqtest.Withhold,
			"b2": rabbitmqtest.Nack,
		})
		time.AfterFunc(time.Second, f.s.Release)
		f.want(f.publish("a1", "a2", "nowhere", "a3", "b2", "b3"), "", "", "topic: NO_ROUTE", "", "plain: nack", "")
		f.dialled(1)
	})
}

func TestPublisherUnconfirmed(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a1": rabbitmqtest.Withhold})
		f.want(f.publish("a1", "b1"), "away: may have arrived", "") // a1 delays no other message
		f.fate(map[string]rabbitmqtest.Fate{"b2": rabbitmqtest.Withhold})
		old := time.AfterFunc(time.Second, f.s.Release) // of the connection that was cut, number 1, and of the new one
		f.want(f.publish("b2"), "")
		old.Stop()
		f.dialled(2)
		f.arrived("a", "a1")
		f.arrived("b", "b1", "b2")
	})
}

func TestPublisherCutBeforeConfirm(t *testing.T) {
	for fate, arrived := range map[rabbitmqtest.Fate][]string{
		rabbitmqtest.CutAfter: {"a1", "a1"}, rabbitmqtest.CutBefore: {"a1"},
	} {
		faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
			f.want(f.publish("b1"), "")
			f.fate(map[string]rabbitmqtest.Fate{"a1": fate})
			f.want(f.publish("a1"), "away: connection lost before the confirm")
			f.fate(nil)
			f.want(f.publish("a1"), "") // the same ID
			f.arrived("a", arrived...)
			f.dialled(2)
		})
	}
}

// byExchange sends messages to the exchange that is their topic, less everything from a slash on.
func byExchange(m *outbox.Message) (exchange, key string) {
	exchange, key, _ = strings.Cut(m.Topic, "/")
	return exchange, key
}

func TestPublisherExchanges(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: byExchange}, func(f *faultEnv) {
		on := func(do func(ch rabbitmq.Channel) error) { onChannel(f.T, f.s.Dial, do) }
		on(func(ch rabbitmq.Channel) error {
			return errors.Join(ch.ExchangeDeclare("events", "topic", true, false, false, false, nil),
				ch.QueueBind("a", "order.*", "events", false, nil))
		})
		msg := func(id, topic string) outbox.Message { return outbox.Message{ID: id, Topic: topic, OrderingKey: id} }
		for at := range 4 { // a missing exchange disturbs no other message, at any position
			msgs := []outbox.Message{msg("1", "events/order.new"), msg("2", "events/order.paid"), msg("3", "/b")}
			want := []string{"", "", ""}
			f.want(f.send(slices.Insert(msgs, at, msg("x", "typo/k"))...),
				slices.Insert(want, at, `plain: exchange "typo"`)...)
		}
		f.want(f.send(msg("y", "events/other")), `plain: exchange "events" with routing key "other": returned`)
		f.dialled(1)
		f.arrived("b", "3", "3", "3", "3")
		// Others on the channel are not disturbed: what waits for its confirm is not sent again.
		f.fate(map[string]rabbitmqtest.Fate{"3": rabbitmqtest.Withhold})
		time.AfterFunc(time.Second, f.s.Release)
		f.want(f.send(msg("3", "/b"), msg("x", "another typo/k")), "", `plain: exchange "another typo"`)
		f.arrived("b", "3", "3", "3", "3", "3")
		f.fate(nil)

		// The exchange is declared, and deleted while the Publisher knows it. Then it closes the channel.
		on(func(ch rabbitmq.Channel) error {
			return errors.Join(ch.ExchangeDeclare("typo", "fanout", true, false, false, false, nil),
				ch.QueueBind("c", "", "typo", false, nil))
		})
		f.want(f.send(msg("x", "typo/k")), "")
		f.s.DeleteExchange("typo")
		f.want(f.send(msg("4", "/b"), msg("x", "typo/k"), msg("z", "typo/k"), msg("5", "/b")), "",
			`plain: exchange "typo"`, `plain: exchange "typo"`, "")
		f.want(f.send(msg("x", "typo/k"), msg("6", "/b")), `plain: NOT_FOUND`, "")
		f.dialled(1)
	})
}

// When all messages of a topic go to one exchange, a missing or closed exchange is the fault of the topic, and not of a
// message.
func TestPublisherExchangeOfATopic(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: func(m *outbox.Message) (exchange, key string) { return m.Topic, m.OrderingKey }}, func(f *faultEnv) {
		f.s.Deny(func(a rabbitmqtest.Access) bool { return a.Name == "amq.topic" })
		for range 2 { // while it is new, and once it is known
			f.want(f.send(outbox.Message{ID: "1", Topic: "typo", OrderingKey: "k"},
				outbox.Message{ID: "2", Topic: "amq.topic", OrderingKey: "k"}),
				`topic: exchange "typo"`, `topic: exchange "amq.topic"`)
		}
	})
	faulty(t, rabbitmq.PublisherConfig{Exchange: "typo"}, func(f *faultEnv) {
		f.want(f.publish("a1", "b1"), `topic: exchange "typo"`, `topic: exchange "typo"`)
	})
}

func TestPublisherAccessRefused(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: byExchange}, func(f *faultEnv) {
		f.s.Deny(func(a rabbitmqtest.Access) bool { return a.Name == "amq.topic" })
		msg := func(id, topic string) outbox.Message { return outbox.Message{ID: id, Topic: topic, OrderingKey: id} }
		f.want(f.send(msg("1", "/a"), msg("2", "amq.topic/k"), msg("3", "/a"), msg("4", "amq.topic/k")), "",
			`plain: grant this user write permission`, "", `plain: exchange "amq.topic"`)
		before := len(f.s.Messages("a"))
		f.fate(map[string]rabbitmqtest.Fate{"5": rabbitmqtest.Withhold})
		for range 5 { // from now on it disturbs no other message
			time.AfterFunc(time.Second, f.s.Release)
			f.want(f.send(msg("5", "/a"), msg("2", "amq.topic/k"), msg("6", "/a")), "", "plain: ACCESS_REFUSED", "")
		}
		if n := len(f.s.Messages("a")) - before; n != 10 {
			t.Errorf("%d messages arrived of 10", n)
		}
		f.s.Deny(nil)
		f.want(f.send(msg("2", "amq.topic/k")), "plain: NO_ROUTE")
		f.dialled(1)
	})
}

func TestPublisherProperties(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		enqueued := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
		headers := outbox.PlainHeaders(outbox.Stored{
			Message: outbox.Message{ID: "id", Headers: map[string]string{"content-type": "application/json", "bytes": "\xff"}}, Seq: 7, Enqueued: enqueued,
		})
		f.want(f.send(outbox.Message{ID: "id", Topic: "a", OrderingKey: "k", Payload: []byte("{}"), Headers: headers}), "")
		d := f.s.Messages("a")[0]
		if d.MessageId != "id" || d.DeliveryMode != amqp.Persistent || d.ContentType != "application/json" ||
			!d.Timestamp.Equal(enqueued.Truncate(time.Second)) {
			t.Errorf("properties %+v", d)
		}
		if d.Headers[rabbitmq.HeaderKey] != "k" || d.Headers[outbox.HeaderSequence] != "7" ||
			fmt.Sprintf("%T", d.Headers["bytes"]) != "[]uint8" {
			t.Errorf("headers %v", d.Headers)
		}
	})
}
