package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// pending is an outbox.Writer on the transactions of a consumertest.Store. move hands new ones to a Queue.
type pending struct {
	store *consumertest.Store
	queue *outboxtest.Memory
	moved map[string]bool
}

const pendingPrefix = "pending message "

func newPending(store *consumertest.Store) *pending {
	return &pending{store: store, queue: outboxtest.NewMemory(), moved: map[string]bool{}}
}

func (p *pending) Enqueue(ctx context.Context, tx tx, msgs ...outbox.Message) error {
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	for _, m := range ready {
		err := tx.Update(ctx, pendingPrefix+m.ID, func(old any) any {
			all, _ := old.([]outbox.Message)
			return append(slices.Clone(all), m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// committed are all messages of committed transactions, in the order of their event's ID.
func (p *pending) committed() (all []outbox.Message) {
	for _, v := range p.store.Database().Values(pendingPrefix) {
		all = append(all, v.([]outbox.Message)...)
	}
	slices.SortFunc(all, func(a, b outbox.Message) int {
		return strings.Compare(a.Headers[webhook.HeaderID], b.Headers[webhook.HeaderID])
	})
	return all
}

func (p *pending) move(t testing.TB) {
	t.Helper()
	if err := p.moveAll(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// mustMove is move for an Example.
func (p *pending) mustMove() {
	if err := p.moveAll(context.Background()); err != nil {
		panic(err)
	}
}

func (p *pending) moveAll(ctx context.Context) error {
	seen := map[string]bool{}
	return p.queue.InTx(ctx, func(tx *outboxtest.Tx) error {
		for _, m := range p.committed() {
			if seen[m.ID] {
				return fmt.Errorf("message %s was enqueued twice", m.ID)
			}
			if seen[m.ID] = true; p.moved[m.ID] {
				continue
			}
			p.moved[m.ID] = true
			if err := p.queue.Enqueue(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

func newInbox(t testing.TB, store *consumertest.Store, out outbox.Writer[tx]) *webhook.Inbox[tx] {
	t.Helper()
	if out == nil {
		out = newPending(store)
	}
	in, err := webhook.NewInbox(webhook.InboxConfig[tx]{Name: "billing", Store: store, Outbox: out, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func newRelay(t testing.TB, cfg relay.Config) *relay.Relay {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
