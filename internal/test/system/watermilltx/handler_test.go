package watermilltx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func newHandler(t *testing.T, cfg watermilltx.HandlerConfig) *watermilltx.Handler {
	t.Helper()
	h, err := watermilltx.NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func processor(t *testing.T, store dedup.Store[*deduptest.Tx],
	handle consumer.Handler[*deduptest.Tx],
) *consumer.Consumer[*deduptest.Tx] {
	t.Helper()
	_, parks := store.(*consumertest.Store)
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: byID, Handle: handle, Logger: slog.New(slog.DiscardHandler), RejectGivenUp: !parks,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func addEffect(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
	id, err := byID(msg)
	return errors.Join(err, tx.Add(id))
}

// TestHandlerOnABroker: failing, poison and repeated messages through a Router of watermill's, and each effect is there
// once.
func TestHandlerOnABroker(t *testing.T) {
	store := consumertest.NewStore()
	var mu sync.Mutex
	attempts := map[string][]int{}
	h := newHandler(t, watermilltx.HandlerConfig{Processor: processor(t, store, func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		if err := addEffect(ctx, tx, msg); err != nil {
			return err
		}
		id, _ := byID(msg)
		mu.Lock()
		defer mu.Unlock()
		attempts[id] = append(attempts[id], msg.Attempt)
		switch {
		case id == "poison":
			return consumer.Permanent(errors.New("never"))
		case len(attempts[id]) == 1:
			return consumer.RetryAfter(errors.New("not yet"), time.Millisecond)
		}
		return nil
	})})
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router := newRouter(t, watermill.NopLogger{})
	router.AddConsumerHandler("billing", "orders", pubsub, h.Handle)
	for _, id := range []string{"1", "poison", "2", "1", "3"} {
		if err := pubsub.Publish("orders", order(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	startRouter(t, router)
	db := store.Database()
	eventually(t, func() bool {
		all, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
		return err == nil && len(all) == 1 && db.Count("1")+db.Count("2")+db.Count("3") == 3
	})
	mu.Lock()
	defer mu.Unlock()
	if db.Count("1") != 1 || db.Count("poison") != 0 || len(attempts["poison"]) != 1 || attempts["2"][1] != 2 {
		t.Errorf("effects of 1: %d, of poison: %d, attempts %v", db.Count("1"), db.Count("poison"), attempts)
	}
}

// A message waits for its next attempt, but not for longer than MaxWait, and attempts count on when it comes again.
func TestHandlerWaitsABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		h := newHandler(t, watermilltx.HandlerConfig{MaxWait: 5 * time.Second, Processor: processor(t, store, func(context.Context, *deduptest.Tx, *consumer.Message) error {
			return consumer.RetryAfter(errors.New("not yet"), 4*time.Second)
		})})
		raw, began := order(t, "1"), time.Now()
		err := h.Handle(raw)
		wantRetry(t, err, false)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("held for %v", took)
		}
		if err := h.Handle(raw.Copy()); err != nil { // the third attempt of three
			t.Errorf("a redelivery begins to count anew: %v", err)
		}
	})
}

// When the database is away for longer than MaxWait, the message is nacked, and no attempt is counted.
func TestHandlerDatabaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		h := newHandler(t, watermilltx.HandlerConfig{Processor: processor(t, store, addEffect)})
		store.Database().Stop()
		for range 5 {
			wantRetry(t, h.Handle(order(t, "1")), true)
		}
		store.Database().Start()
		if err := h.Handle(order(t, "1")); err != nil || store.Database().Count("1") != 1 {
			t.Errorf("%v, %d effects", err, store.Database().Count("1"))
		}
	})
}

// A rejected message stays with the broker.
func TestHandlerNeverAcksARejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHandler(t, watermilltx.HandlerConfig{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Processor: processor(t, deduptest.NewStore(), func(context.Context, *deduptest.Tx, *consumer.Message) error {
				return consumer.Permanent(errors.New("never"))
			}),
		})
		began := time.Now()
		if err := h.Handle(order(t, "1")); err == nil {
			t.Error("a rejected message is acked")
		}
		if time.Since(began) != watermilltx.DefaultMaxWait || !strings.Contains(log.String(), "rejected") {
			t.Errorf("nacked after %v, with the log: %s", time.Since(began), &log)
		}
	})
}

// sleeping is a Processor that is not a BatchProcessor.
type sleeping func(ctx context.Context, msg *consumer.Message) error

func (p sleeping) Process(ctx context.Context, msg *consumer.Message) error { return p(ctx, msg) }

func TestHandlerOfAPlainProcessor(t *testing.T) {
	var got consumer.Message
	h := newHandler(t, watermilltx.HandlerConfig{
		Processor: sleeping(func(_ context.Context, msg *consumer.Message) error { got = *msg; return nil }),
		Amend:     func(msg *consumer.Message) { msg.OrderingKey = msg.Raw.(*message.Message).Metadata.Get("partition") },
	})
	raw := order(t, "1")
	raw.Metadata.Set("partition", "p")
	if err := h.Handle(raw); err != nil || got.OrderingKey != "p" || got.Attempt != 1 ||
		!strings.HasSuffix(got.Position, raw.UUID) || got.ID != "" {
		t.Errorf("%v: %+v", err, got)
	}
}

// batching is a BatchProcessor.
type batching func(msgs []*consumer.Message) []error

func (p batching) Process(_ context.Context, msg *consumer.Message) error {
	return p([]*consumer.Message{msg})[0]
}

func (p batching) ProcessBatch(_ context.Context, msgs []*consumer.Message) []error { return p(msgs) }

// When a Processor breaks its contract, the process goes on, and the message is not acked.
func TestHandlerOfABrokenProcessor(t *testing.T) {
	for name, p := range map[string]consumer.Processor{
		"a panic":     sleeping(func(context.Context, *consumer.Message) error { panic("broken") }),
		"no answer":   batching(func([]*consumer.Message) []error { return nil }),
		"two answers": batching(func([]*consumer.Message) []error { return make([]error, 2) }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, watermilltx.HandlerConfig{Processor: p, Logger: slog.New(slog.DiscardHandler)})
				if err := h.Handle(order(t, "1")); err == nil {
					t.Error("the message is acked")
				}
			})
		})
	}
}

func TestHandlerConfigRefused(t *testing.T) {
	for _, test := range []struct {
		want string
		cfg  watermilltx.HandlerConfig
	}{
		{"Processor", watermilltx.HandlerConfig{}},
		{"MaxWait", watermilltx.HandlerConfig{Processor: sleeping(nil), MaxWait: -1}},
	} {
		if _, err := watermilltx.NewHandler(test.cfg); err == nil || !strings.Contains(err.Error(),
			"HandlerConfig."+test.want) {
			t.Errorf("%s: %v", test.want, err)
		}
	}
}
