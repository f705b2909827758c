package watermilltx_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/internal/test/testlog"
)

// startRouter runs router until the test ends.
func startRouter(t *testing.T, router *message.Router) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-done:
		cancel()
		t.Fatalf("Run = %v; want it to run", err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func newRouter(t *testing.T, log watermill.LoggerAdapter) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 2 * time.Minute}, log)
	if err != nil {
		t.Fatal(err)
	}
	return router
}

// recorder is a watermill publisher that records its messages.
type recorder struct {
	mu   sync.Mutex
	msgs []string
}

func (r *recorder) Publish(topic string, msgs ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range msgs {
		r.msgs = append(r.msgs, topic+": "+string(m.Payload))
	}
	return nil
}

func (r *recorder) Close() error { return nil }

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.msgs...)
}

// TestOrderOfMiddlewares is the whole chain: Recoverer, PoisonQueue, Retry, ours, handler.
func TestOrderOfMiddlewares(t *testing.T) {
	eachBase(t, func(t *testing.T, b *base) {
		pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
		poison, direct := &recorder{}, &recorder{}
		cfg := config(b, "billing")
		cfg.Topic = nil // the Router's
		cfg.MaxAttempts = 10
		once := newMiddleware(t, cfg)
		var mu sync.Mutex
		tries := map[string]int{}
		handler := func(msg *message.Message) ([]*message.Message, error) {
			produced, err := charge(msg)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			id := strings.TrimPrefix(string(produced[0].Payload), "charged ")
			tries[id]++
			switch {
			case id == "3":
				return nil, errors.Join(insert(msg, "half"), errors.New("always"))
			case tries[id] == 1:
				panic("oh")
			case tries[id] == 2:
				return nil, errors.New("not yet")
			}
			return produced, nil
		}
		router := newRouter(t, watermill.NopLogger{})
		poisonQueue, err := middleware.PoisonQueueWithFilter(poison, "poison", watermilltx.IsPoison)
		if err != nil {
			t.Fatal(err)
		}
		retry := middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}
		router.AddMiddleware(middleware.Recoverer, poisonQueue, retry.Middleware)
		router.AddHandler("billing", "orders", pubsub, "charges", direct, handler).AddMiddleware(once.Middleware)
		for _, id := range []string{"1", "2", "1", "3"} {
			if err := pubsub.Publish("orders", order(t, id)); err != nil {
				t.Fatal(err)
			}
		}
		startRouter(t, router)
		eventually(t, func() bool { return len(letters(t, once)) == 1 && len(b.effects()) == 2 })
		b.wantEffects("1", "2")
		if got := append(poison.all(), direct.all()...); len(got) != 0 {
			t.Errorf("published beside the outbox: %q", got)
		}
		var topics []string
		for _, m := range b.wantPublished(2) {
			topics = append(topics, m.Topic)
		}
		if topics[0] != "charges" || topics[1] != "charges" {
			t.Errorf("topics %q", topics)
		}
	})
}

// One Middleware before two handlers would make the one's messages duplicates of the other's.
func TestTwoHandlersAreRefused(t *testing.T) {
	b := newSQLite(t)
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	var log testlog.Log
	router := newRouter(t, watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&log, nil))))
	once := newMiddleware(t, config(b, "billing"))
	router.AddMiddleware(once.Middleware)
	var mu sync.Mutex
	ran := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		router.AddConsumerHandler(name, "orders", pubsub, func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			ran[name] = true
			return nil
		})
	}
	if err := pubsub.Publish("orders", order(t, "1")); err != nil {
		t.Fatal(err)
	}
	startRouter(t, router)
	eventually(t, func() bool { return strings.Contains(log.String(), "make one for each handler") })
	mu.Lock()
	defer mu.Unlock()
	if len(ran) > 1 {
		t.Errorf("both handlers ran: %v", ran)
	}
}
