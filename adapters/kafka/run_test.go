package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// ledger is a Processor that writes down what it is given.
type ledger struct {
	mu   sync.Mutex
	seen []string
	fail func(msg *consumer.Message) error
}

func (l *ledger) Process(_ context.Context, msg *consumer.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, string(msg.Payload))
	if l.fail != nil {
		return l.fail(msg)
	}
	return nil
}

func (l *ledger) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.seen...)
}

func TestEachInOrder(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 2)
		g.produce(t, text(0, numbers(3000)...)...)
		l := &ledger{}
		m := g.join(t, kafka.SubscriberConfig{Processor: l})
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
		if diff := cmp.Diff(numbers(3000), l.list()); diff != "" {
			t.Error(diff)
		}
	})
}

var _ = fmt.Sprint
