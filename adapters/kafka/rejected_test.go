package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// TestRejected: the Processor rejects a message, and no store keeps it.
func TestRejected(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.produce(t, text(0, numbers(10)...)...)
		broken := errors.New("nowhere to put it")
		l := &ledger{answer: func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Payload) == "4" {
				return broken
			}
			return nil
		}}
		m := g.join(t, kafka.SubscriberConfig{Processor: l})
		err := m.await()
		if !errors.Is(err, broken) || !strings.Contains(fmt.Sprint(err), g.topic+"/0/4") {
			t.Errorf("Run = %v; want it to say that %s/0/4 was rejected, and why", err, g.topic)
		}
		if left, err := g.left(); err != nil || left != 6 {
			t.Errorf("%d messages are uncommitted (%v); want 6: the rejected one and what follows it", left, err)
		}
		l.answer = nil
		g.join(t, kafka.SubscriberConfig{Processor: l})
		g.awaitConsumed(t)
		if got := len(attemptsOf(l, "4")); got != 2 {
			t.Errorf("the rejected message was delivered %d times; want it again by the next Run", got)
		}
	})
}

// TestPanic: a panic of a Processor is not an answer about its message, and the error has the place of the panic.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one by one", "in batches"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			g := startKfake(t).group(t, 1)
			g.produceAtOnce(t, text(0, numbers(10)...)...)
			l := &ledger{answer: func(_ context.Context, msg *consumer.Message) error {
				if string(msg.Payload) == "4" {
					panic("a nil pointer or so")
				}
				return nil
			}}
			cfg := kafka.SubscriberConfig{Processor: l, MaxBatch: 1}
			if way == "in batches" {
				cfg.Processor = inBatches{ledger: l}
			}
			err := g.join(t, cfg).await()
			panicked, is := errors.AsType[*consumer.PanicError](err)
			if !is || panicked.Value != "a nil pointer or so" || !strings.Contains(string(panicked.Stack),
				"rejected_test.go") || !strings.Contains(err.Error(), g.topic+"/0/4") {
				t.Errorf("Run = %v; want the position, the value and the stack of the panic", err)
			}
			if left, err := g.left(); err != nil || left != 6 {
				t.Errorf("%d messages are uncommitted (%v); want 6", left, err)
			}
		})
	}
}

type wrongCount struct{ *ledger }

func (wrongCount) ProcessBatch(context.Context, []*consumer.Message) []error { return nil }

func TestMissingAnswersAreNoAcknowledgement(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	g.produce(t, text(0, "0", "1")...)
	m := g.join(t, kafka.SubscriberConfig{Processor: wrongCount{&ledger{}}})
	if err := m.await(); err == nil || !strings.Contains(err.Error(), "0 answers") {
		t.Errorf("Run = %v; want it to complain of the missing answers", err)
	}
	if left, err := g.left(); err != nil || left != 2 {
		t.Errorf("%d messages are uncommitted (%v); want 2", left, err)
	}
}
