package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// TestStopFinishesWhatRuns ends Run's context while a handler runs.
func TestStopFinishesWhatRuns(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 1)
			g.produce(t, text(0, "0", "1", "2")...)
			running, finish := make(chan struct{}), make(chan struct{})
			l := &ledger{answer: func(ctx context.Context, msg *consumer.Message) error {
				if string(msg.Payload) == "1" {
					close(running)
					<-finish
				}
				return ctx.Err()
			}}
			m := g.join(t, kafka.SubscriberConfig{Client: dial(t, c.brokers, testConfig(strategy)), Processor: l})
			<-running
			m.cancel()
			select {
			case <-m.done:
				t.Fatalf("Run = %v although a handler is running", m.err)
			case <-time.After(300 * time.Millisecond):
			}
			close(finish)
			if err := m.await(); err != nil {
				t.Errorf("Run = %v; want nil", err)
			}
			if diff := cmp.Diff([]string{"0", "1"}, l.list()); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
			if left, err := g.left(); err != nil || left != 1 {
				t.Errorf("%d messages are uncommitted (%v); want 1: what was finished is acknowledged, what was not begun is not", left, err)
			}
		})
	})
}

// TestStopCancelsWhatOverstays has a handler that ends only when its context does.
func TestStopCancelsWhatOverstays(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.produce(t, text(0, "0", "1")...)
		running := make(chan struct{})
		l := &ledger{answer: func(ctx context.Context, msg *consumer.Message) error {
			if string(msg.Payload) == "0" {
				return nil
			}
			close(running)
			<-ctx.Done()
			return fmt.Errorf("handler: %w", ctx.Err())
		}}
		m := g.join(t, kafka.SubscriberConfig{Processor: l, Grace: 700 * time.Millisecond})
		<-running
		began := time.Now()
		if err := m.stop(); err != nil {
			t.Errorf("Run = %v; want nil: a cancelled attempt is no rejection", err)
		}
		if took := time.Since(began); took < 700*time.Millisecond || took > 25*time.Second { // 30 s is the default
			t.Errorf("the handler was cancelled after %v; its grace is 700ms", took)
		}
		if log := m.log.String(); strings.Contains(log, "goes on") {
			t.Errorf("a handler that ends with its context was not waited for. Log:\n%s", log)
		}
		if left, err := g.left(); err != nil || left != 1 {
			t.Errorf("%d messages are uncommitted (%v); want 1, the cancelled one", left, err)
		}
	})
}

// TestStopWithAHandlerThatIgnoresIt must not hang.
func TestStopWithAHandlerThatIgnoresIt(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	g.produce(t, text(0, "0")...)
	running, finish := make(chan struct{}), make(chan struct{})
	defer close(finish)
	deaf := processor(func(context.Context, *consumer.Message) error {
		close(running)
		<-finish
		return nil
	})
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	// an eighth of it is waited for a handler whose context is cancelled
	cfg.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	m := g.join(t, kafka.SubscriberConfig{Client: dial(t, g.brokers, cfg), Processor: deaf, Grace: 100 * time.Millisecond})
	<-running
	if err := m.stop(); err == nil {
		t.Error("Run = nil although a handler is still running")
	}
	if left, err := g.left(); err != nil || left != 1 {
		t.Errorf("%d messages are uncommitted (%v); want 1", left, err)
	}
}

// TestStopWhenTheClusterHangs must not wait for it.
func TestStopWhenTheClusterHangs(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	cfg.Net.ReadTimeout = time.Hour // so that waiting for an answer would last longer than the test
	f := newFreezer(cfg)
	var a assignments
	m := g.join(t, kafka.SubscriberConfig{
		Client: dial(t, g.brokers, cfg), Processor: &ledger{}, Grace: 100 * time.Millisecond, Trace: a.trace(),
	})
	a.await(t, 1)
	f.freeze()
	defer f.thaw()
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v; want nil", err)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	client := dial(t, g.brokers, testConfig(sarama.NewBalanceStrategyRange()))
	l := &ledger{}
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: client, Group: g.name, Topics: []string{g.topic},
		Processor: l,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		g.produce(t, text(0, fmt.Sprint(i))...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sub.Run(ctx) }()
		g.awaitConsumed(t)
		if err := sub.Run(ctx); err == nil {
			t.Error("Run = nil while another Run is running")
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run %d = %v", i, err)
		}
	}
	if client.Closed() {
		t.Error("the caller's client was closed")
	}
	if diff := cmp.Diff([]string{"0", "1"}, l.list()); diff != "" {
		t.Errorf("handled (-want +got):\n%s", diff)
	}
}

// TestStopAtAnyTime ends the context wherever Run happens to be.
func TestStopAtAnyTime(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.produce(t, text(0, numbers(10)...)...)
		for i := range 12 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*3*time.Millisecond)
			sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
				Client: g.client, Group: g.name, Topics: []string{g.topic}, Processor: &ledger{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := sub.Run(ctx); err != nil {
				t.Errorf("Run = %v when its context ended after %v; want nil", err,
					time.Duration(i*i)*3*time.Millisecond)
			}
			cancel()
		}
		if left, err := g.behind(0); err != nil || left < 0 || left > 10 { // it may have had no time for a commit
			t.Errorf("left %d, %v", left, err)
		}
	})
}
