package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
)

// ackFaults are what may happen to the first acknowledgement, after the handler's commit.
var ackFaults = map[string]func(ch rabbitmq.Channel, cut func(), tag uint64) error{
	"the connection is gone": func(ch rabbitmq.Channel, cut func(), tag uint64) error {
		gone := ch.NotifyClose(make(chan *amqp.Error, 1))
		cut()
		<-gone
		return ch.Ack(tag, false)
	},
	"the server has closed the channel": func(ch rabbitmq.Channel, _ func(), tag uint64) error {
		gone := ch.NotifyClose(make(chan *amqp.Error, 1))
		_ = ch.Ack(tag+1000, false)
		<-gone
		return ch.Ack(tag, false)
	},
	"it is written and never arrives": func(_ rabbitmq.Channel, cut func(), _ uint64) error {
		cut()
		return nil
	},
	"it fails on a channel that goes on": func(rabbitmq.Channel, func(),
		uint64,
	) error {
		return errors.New("not written")
	},
}

// TestAckThatDoesNotArrive: the Subscriber connects again. The message comes again and is acknowledged then, none is
// lost or has two effects, and later messages are handled too.
func TestAckThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	for name, fault := range ackFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("fake", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fake(t, rabbitmqtest.Config{})
					if sessions, acked := ackOnce(t, s.Dial, s.Dial, workQueue, s.Cut, fault); sessions != 2 ||
						acked != 1 {
						t.Errorf("%d sessions, told of %d acknowledgements that may have arrived; want one session before the loss and one after it, and 1",
							sessions, acked)
					}
					nothingLeft(t, s)
				})
			})
			t.Run("rabbitmq", func(t *testing.T) {
				url := testrabbitmq.Server(t)
				queue := testrabbitmq.Queue(t, url, nil)
				p := newProxy(t, url)
				ackOnce(t, dialer(url), dialer(p.url), queue, p.cut, fault)
				if n := testrabbitmq.Ready(t, url, queue); n != 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		})
	}
}

// ackOnce has messages handled, and their first acknowledgement meets fault. It returns how often deliveries began, and
// how many acknowledgements of the first message the Subscriber reported, without one whose fate it could not know.
func ackOnce(
	t *testing.T, own, dial rabbitmq.Dialer, queue string, cut func(), fault func(rabbitmq.Channel, func(),
		uint64) error,
) (sessions, told int) {
	db := deduptest.NewDatabase()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: consumertest.NewStoreOn(db), Key: func(m *consumer.Message) (string,
			error,
		) {
			return m.ID, nil
		},
		Handle: func(_ context.Context, tx *deduptest.Tx, m *consumer.Message) error { return tx.Add(m.ID) },
		Logger: testlog.New(t).Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	begun := 0
	acked, change := map[string]int{}, make(chan struct{}, 1)
	lossy := &lossyAcks{fault: fault, cut: cut}
	s := ownSubscriber(t, rabbitmq.SubscriberConfig{
		Dial: lossy.dial(dial), Queue: queue, Processor: c,
		Trace: &driver.SourceTrace{
			Subscribed: func(context.Context, driver.SourceEvent) { mu.Lock(); defer mu.Unlock(); begun++ },
			Acked: func(_ context.Context, e driver.SourceEvent) {
				mu.Lock()
				defer mu.Unlock()
				acked[e.Message.ID]++
				select {
				case change <- struct{}{}:
				default:
				}
			},
		},
	})
	ids := []string{"1", "2", "3", "4", "5"} // as their delivery tags at first
	for _, id := range ids {
		send(t, own, queue, amqp.Publishing{MessageId: id})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	patience := time.After(2 * time.Minute)
	await := func(what string, there func() bool) {
		t.Helper()
		for {
			mu.Lock()
			ok := there()
			mu.Unlock()
			if ok {
				return
			}
			select {
			case <-change:
			case err := <-done:
				t.Fatalf("Run = %v while waiting for: %s", err, what)
			case <-patience:
				t.Fatalf("waited in vain for: %s", what)
			}
		}
	}
	await("each message's acknowledgement, and a second one where the first was written and has not arrived", func() bool {
		for _, id := range ids {
			if acked[id] < 1+lossy.toldOf(id) {
				return false
			}
		}
		return lossy.met() != ""
	})
	send(t, own, queue, amqp.Publishing{MessageId: "later"})
	await("a message that is sent later", func() bool { return acked["later"] > 0 })
	await("the server's taking in of what was acknowledged", func() bool { return lossy.takenIn(queue) })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	for _, id := range append(ids, "later") {
		if n := db.Count(id); n != 1 {
			t.Errorf("message %s has %d effects", id, n)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	first := lossy.met()
	return begun, acked[first] - lossy.toldOf(first)
}

// lossyAcks dials connections whose first acknowledgement meets fault.
type lossyAcks struct {
	fault func(rabbitmq.Channel, func(), uint64) error
	cut   func()

	mu   sync.Mutex
	id   string           // of the message whose acknowledgement has met it
	told int              // 1: the Subscriber was told that it is written
	last rabbitmq.Channel // the last channel with an acknowledgement
}

func (l *lossyAcks) dial(dial rabbitmq.Dialer) rabbitmq.Dialer {
	return func(ctx context.Context) (rabbitmq.Connection, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return lossyConnection{c, l}, nil
	}
}

// met is the ID of the message whose acknowledgement has met the fault; empty: none yet.
func (l *lossyAcks) met() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// toldOf is how many acknowledgements of this message the Subscriber reports although they do not arrive.
func (l *lossyAcks) toldOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id != l.id {
		return 0
	}
	return l.told
}

// takenIn reports whether the server has handled the last acknowledgement: it answers a later request on the same
// channel. If the channel is lost, the messages come again on the next one.
func (l *lossyAcks) takenIn(queue string) bool {
	l.mu.Lock()
	ch := l.last
	l.mu.Unlock()
	_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err == nil
}

type lossyConnection struct {
	rabbitmq.Connection
	acks *lossyAcks
}

func (c lossyConnection) Channel() (rabbitmq.Channel, error) {
	ch, err := c.Connection.Channel()
	ch.ChannelConsumer = lossyChannel{ch, c.acks}
	return ch, err
}

type lossyChannel struct {
	rabbitmq.Channel
	acks *lossyAcks
}

func (ch lossyChannel) Ack(tag uint64, multiple bool) error {
	a := ch.acks
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id != "" {
		a.last = ch.Channel
		return ch.Channel.Ack(tag, multiple)
	}
	a.id = fmt.Sprint(tag) // as the messages are named, in their order
	err := a.fault(ch.Channel, a.cut, tag)
	if err == nil {
		a.told = 1
	}
	return err
}
