package rabbitmq_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testlog"
)

// answers is a Processor that records its messages and returns the answers that the test chose.
type answers struct {
	say func(ctx context.Context, msg *consumer.Message) error

	mu  sync.Mutex
	got []consumer.Message
	at  []time.Time
}

func (a *answers) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = a.Process(ctx, m)
	}
	return errs
}

func (a *answers) Process(ctx context.Context, msg *consumer.Message) error {
	a.mu.Lock()
	a.got, a.at = append(a.got, *msg), append(a.at, time.Now())
	a.mu.Unlock()
	if a.say == nil {
		return nil
	}
	return a.say(ctx, msg)
}

func (a *answers) all() []consumer.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]consumer.Message(nil), a.got...)
}

// bench is a Subscriber on a fake server, with the retry queue of short delays in place.
type bench struct {
	*rabbitmqtest.Server
	log    *testlog.Log
	err    error
	cancel context.CancelFunc
	done   chan struct{}
}

const workQueue = "work"

func fake(t *testing.T, cfg rabbitmqtest.Config) *rabbitmqtest.Server {
	s := rabbitmqtest.NewServer(cfg)
	onChannel(t, s.Dial, func(ch rabbitmq.Channel) error {
		if _, err := ch.QueueDeclare(workQueue, true, false, false, false, nil); err != nil {
			return err
		}
		return rabbitmq.DeclareRetryQueues(ch, workQueue, 4*time.Second)
	})
	return s
}

func subscribe(t *testing.T, s *rabbitmqtest.Server, cfg rabbitmq.SubscriberConfig) *bench {
	t.Helper()
	return subscribeWith(t, s, rabbitmq.NewSubscriberWithOldRetryQueues, cfg)
}

// subscribeAnew subscribes when the retry queues may be new.
func subscribeAnew(t *testing.T, s *rabbitmqtest.Server, cfg rabbitmq.SubscriberConfig) *bench {
	t.Helper()
	return subscribeWith(t, s, rabbitmq.NewSubscriber, cfg)
}

func subscribeWith(
	t *testing.T, s *rabbitmqtest.Server, newSubscriber func(rabbitmq.SubscriberConfig) (*rabbitmq.Subscriber, error),
	cfg rabbitmq.SubscriberConfig,
) *bench {
	t.Helper()
	b := &bench{Server: s, done: make(chan struct{}), log: &testlog.Log{}}
	if cfg.Dial == nil {
		cfg.Dial = s.Dial
	}
	cfg.Queue, cfg.Logger = workQueue, b.log.Logger()
	sub, err := newSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() {
		defer close(b.done)
		b.err = sub.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-b.done })
	return b
}

// stop ends Run and returns its error.
func (b *bench) stop() error {
	b.cancel()
	<-b.done
	return b.err
}

// send sends msgs one after the other. A quorum queue that is new, or that has no leader yet, refuses messages for a
// moment.
func send(t *testing.T, dial rabbitmq.Dialer, queue string, msgs ...amqp.Publishing) {
	t.Helper()
	onChannel(t, dial, func(ch rabbitmq.Channel) error {
		if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
			return err // for what no queue takes is confirmed too
		}
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, m := range msgs {
			m.DeliveryMode = amqp.Persistent
			if err := sendUntilTaken(t, ch, queue, m); err != nil {
				return err
			}
		}
		return nil
	})
}

func sendUntilTaken(t *testing.T, ch rabbitmq.Channel, queue string, msg amqp.Publishing) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		taken, err := publishConfirmed(ctx, ch, queue, msg)
		if err != nil || taken {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// publishConfirmed sends msg, waits for its confirm, and reports whether the server has taken it.
func publishConfirmed(ctx context.Context, ch rabbitmq.Channel, queue string,
	msg amqp.Publishing,
) (taken bool, err error) {
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, msg)
	if err != nil {
		return false, err
	}
	select {
	case <-confirm.Done():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if !confirm.Acked() && ch.IsClosed() {
		return false, errors.New("the channel is lost before the server has confirmed")
	}
	return confirm.Acked(), nil
}

// nothingLeft fails the test unless every message was settled.
func nothingLeft(t *testing.T, s *rabbitmqtest.Server) {
	t.Helper()
	for _, q := range append(retryQueues(workQueue), workQueue) {
		if state, _ := s.Queue(q); state.Ready+state.Unacked > 0 {
			t.Errorf("%s holds %+v", q, state)
		}
	}
}
