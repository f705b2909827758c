package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// broker is a broker in memory with faults. It is the relay's publisher and the audit's topic.
type broker struct {
	mu       sync.Mutex
	messages []*consumer.Message
	spoil    func(m outbox.Message) (times int, err error) // nil: each message is published once
	kept     time.Time
	read     func() // called by the first Read, when it knows where the topic ends; nil: nothing
}

func (b *broker) Publish(_ context.Context, msgs []outbox.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		times := 1
		if b.spoil != nil {
			times, errs[i] = b.spoil(m)
		}
		for range times {
			b.messages = append(b.messages, &consumer.Message{
				Topic: m.Topic, Position: fmt.Sprintf("%s/0/%d", m.Topic, len(b.messages)), Headers: m.Headers,
				Time: time.Now(),
			})
		}
	}
	return errs
}

// Read implements audit.Topic for the topic charged.
func (b *broker) Read(_ context.Context, since, until time.Time) (audit.Source, error) {
	b.mu.Lock()
	s := &source{}
	for _, m := range b.messages {
		if m.Topic == "charged" && !m.Time.Before(since) && (until.IsZero() || m.Time.Before(until)) {
			s.msgs = append(s.msgs, m)
		}
	}
	then := b.read
	b.read = nil
	b.mu.Unlock()
	if then != nil {
		then()
	}
	return s, nil
}

func (b *broker) Kept(context.Context) (time.Time, error) { return b.kept, nil }

func (b *broker) outbox() audit.OutboxConfig {
	return audit.OutboxConfig{Topic: "charged", Published: b}
}

// outgoing is a world with an outbox.
type outgoing struct {
	*world
	store *sqlstore.Store
	broker
}

// eachOutbox runs f on each kind of database, with a store that keeps sent messages for a time.
func eachOutbox(t *testing.T, keepSent time.Duration, f func(t *testing.T, o *outgoing)) {
	each(t, func(t *testing.T, w *world) {
		store, err := sqlstore.New(sqlstore.Config{
			DB: w.db, Dialect: w.dialect, ClaimTimeout: time.Minute,
			Outbox: sqlstore.OutboxConfig{KeepSent: keepSent},
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, &outgoing{world: w, store: store})
	})
}

func (o *outgoing) enqueue(t *testing.T, msgs ...outbox.Message) {
	t.Helper()
	tx, err := o.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := o.store.Enqueue(t.Context(), tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func charged(from, to int) (msgs []outbox.Message) {
	for i := from; i < to; i++ {
		msgs = append(msgs, outbox.Message{ID: fmt.Sprintf("m-%d", i), Topic: "charged", Payload: []byte("x")})
	}
	return msgs
}

// publish runs a relay until nothing is pending.
func (o *outgoing) publish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop := o.relay(t)
	defer stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if st, err := o.store.Outbox().Stats(ctx); err != nil || st.Pending == 0 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		<-tick.C
	}
}

// relay runs a relay until stop is called.
func (o *outgoing) relay(t *testing.T) (stop func()) {
	t.Helper()
	r, err := relay.New(relay.Config{Queue: o.store, Publisher: &o.broker, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func ids(r audit.Report, kind audit.Kind) (ids []string) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
