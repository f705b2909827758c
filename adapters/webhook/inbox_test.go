package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// claimsOnly is a store without an outbox.
type claimsOnly struct{ dedup.Store[tx] }

func TestNewInboxRefusesSettings(t *testing.T) {
	store := consumertest.NewStore()
	out := newPending(store)
	for _, c := range []struct {
		name string
		cfg  webhook.InboxConfig[tx]
		says string
	}{
		{"no name", webhook.InboxConfig[tx]{Store: store, Outbox: out}, "InboxConfig.Name is required"},
		{"no store", webhook.InboxConfig[tx]{Name: "billing", Outbox: out}, "InboxConfig.Store is required"},
		{
			"a nil store",
			webhook.InboxConfig[tx]{Name: "billing", Store: (*consumertest.Store)(nil), Outbox: out},
			"InboxConfig.Store is required",
		},
		{
			"no outbox",
			webhook.InboxConfig[tx]{Name: "billing", Store: claimsOnly{store}},
			"InboxConfig.Outbox is required, because the Store webhook_test.claimsOnly is not an outbox.Writer",
		},
		{
			"a nil outbox",
			webhook.InboxConfig[tx]{Name: "billing", Store: store, Outbox: (*pending)(nil)},
			"InboxConfig.Outbox is required",
		},
		{"a wrapper of the interface", webhook.InboxConfig[tx]{Name: "billing", Store: struct{ dedup.Store[tx] }{store}, Outbox: out}, "keeps no dead letters"},
		{
			"an impossible topic",
			webhook.InboxConfig[tx]{Name: "billing", Store: store, Outbox: out, Topic: "a\x00b"},
			"InboxConfig.Topic",
		},
		{
			"a short window",
			webhook.InboxConfig[tx]{Name: "billing", Store: store, Outbox: out, Window: time.Minute},
			"Window is 1m0s",
		},
	} {
		if _, err := webhook.NewInbox(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	in := newInbox(t, store, out)
	if in.Window() != 400*24*time.Hour || in.Topic() != "billing.inbox" {
		t.Errorf("E26: the window is %v, the topic %q", in.Window(), in.Topic())
	}
}

// The fields that the Verifier sets reach the consumer unchanged, through a Worker and through a broker.
func TestWhatIsForwarded(t *testing.T) {
	fingerprint, none := dedup.FingerprintOf([]byte("stable")), dedup.Fingerprint{}
	for _, c := range []struct {
		name string
		msg  consumer.Message
	}{
		{"all fields", consumer.Message{
			ID: strings.Repeat("x", 300), Tenant: "shop/live", Topic: "order/paid", OrderingKey: "order-1",
			Payload: []byte("{}\x00"),
			Headers: map[string]string{"api-version": "2"}, Time: time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC),
			Fingerprint: &fingerprint,
			Aliases:     []string{"object:cs_1", "é,\n\x01\"\\"},
		}},
		{"few fields", consumer.Message{ID: "1", Tenant: "shop", Payload: []byte{}}},
		{"a fingerprint that matches all content", consumer.Message{ID: "1", Tenant: "shop", Payload: []byte("x"), Fingerprint: &none}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := consumertest.NewStore()
			out := newPending(store)
			in := newInbox(t, store, out)
			msg := c.msg
			if errs := in.ProcessBatch(t.Context(), []*consumer.Message{&msg}); errs[0] != nil {
				t.Fatal(errs[0])
			}
			out.move(t)
			var got consumer.Message
			worker, err := webhook.NewWorker(webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
				got = *msgs[0]
				return make([]error, len(msgs))
			})})
			if err != nil {
				t.Fatal(err)
			}
			broker := &outboxtest.FakePublisher{}
			both := publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
				broker.Publish(ctx, msgs)
				return worker.Publish(ctx, msgs)
			})
			if n, err := newRelay(t, relay.Config{Queue: out.queue, Publishers: map[string]outbox.Publisher{"billing.inbox": both}}).RunOnce(t.Context()); n != 1 || err != nil {
				t.Fatalf("%d published, %v", n, err)
			}
			if !strings.HasPrefix(got.Position, "outbox/billing.inbox/") || got.Malformed != nil {
				t.Errorf("Position %q, Malformed %v", got.Position, got.Malformed)
			}
			want := c.msg
			want.Attempt, want.Position, want.Headers, got.Headers = 1, got.Position, nil, withoutOurs(got.Headers)
			if len(c.msg.Headers) > 0 {
				want.Headers = c.msg.Headers
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("through a Worker (-want +got):\n%s", diff)
			}

			published := broker.Published()[0]
			var claimed *consumer.Message
			other := consumertest.NewStore()
			kafka, err := consumer.New(consumer.Config[tx]{
				Name: "billing", Store: other, Logger: slog.New(slog.DiscardHandler),
				Key: consumer.HeaderKey(webhook.HeaderID), Tenant: consumer.HeaderKey(webhook.HeaderTenant),
				Fingerprint: webhook.ForwardedFingerprint,
				Handle:      webhook.ByTopic(map[string]consumer.Handler[tx]{c.msg.Topic: func(_ context.Context, _ tx, m *consumer.Message) error { claimed = m; return nil }}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := kafka.Process(t.Context(), &consumer.Message{
				Topic: "billing.inbox", Headers: published.Headers,
				Payload: published.Payload,
			}); err != nil || claimed == nil {
				t.Fatalf("through a broker: %v, and its handler got %v", err, claimed)
			}
			claim, found, err := other.Lookup(t.Context(),
				dedup.Key{Consumer: "billing", Tenant: c.msg.Tenant, ID: c.msg.ID})
			expect := dedup.FingerprintOf(c.msg.Payload)
			if c.msg.Fingerprint != nil {
				expect = *c.msg.Fingerprint
			}
			if !found || err != nil || claim.Fingerprint != expect {
				t.Errorf("through a broker: found %v, fingerprint %v, want %v", found, claim.Fingerprint, expect)
			}
		})
	}
}

func withoutOurs(headers map[string]string) map[string]string {
	var rest map[string]string
	for name, value := range headers {
		if !strings.HasPrefix(name, "inbox-") && !strings.HasPrefix(name, "txonce-") {
			if rest == nil {
				rest = map[string]string{}
			}
			rest[name] = value
		}
	}
	return rest
}

// forwarding is an Inbox with the Worker and the consumer behind it, on one database.
type forwarding struct {
	store    *consumertest.Store
	in       *webhook.Inbox[tx]
	consumer *consumer.Consumer[tx]
	out      *pending
	relay    *relay.Relay
}

func newForwarding(t *testing.T) *forwarding {
	t.Helper()
	f := &forwarding{store: consumertest.NewStore()}
	f.out = newPending(f.store)
	f.in = newInbox(t, f.store, f.out)
	f.consumer = billing(t, consumer.Config[tx]{Store: f.store, Fingerprint: consumer.NoFingerprint})
	f.relay = newRelay(t, relay.Config{Queue: f.out.queue, Publisher: newWorker(t, webhook.WorkerConfig{Processor: f.consumer})})
	return f
}

// deliver hands an event to the Inbox or the consumer, and forwards what the Inbox has stored.
func (f *forwarding) deliver(t *testing.T, to driver.BatchProcessor, id, content string, aliases ...string) {
	t.Helper()
	fingerprint := dedup.FingerprintOf([]byte(content))
	msg := &consumer.Message{
		ID: id, Tenant: "shop/live", Payload: []byte(content), Fingerprint: &fingerprint,
		Aliases: aliases,
	}
	if errs := to.ProcessBatch(t.Context(), []*consumer.Message{msg}); errs[0] != nil {
		t.Error(errs[0])
	}
	f.forward(t)
}

func (f *forwarding) forward(t *testing.T) {
	t.Helper()
	f.out.move(t)
	for n := 1; n > 0; {
		var err error
		if n, err = f.relay.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The Inbox parks a genuine event because its ID was used for another one, and a person replays it under a new key.
// Under its old ID the consumer would take it for a duplicate.
func TestReplayOfAnInboxUnderANewKey(t *testing.T) {
	f := newForwarding(t)
	f.deliver(t, f.in, "1", "captured")
	f.deliver(t, f.in, "1", "genuine")
	if ran, err := f.in.Consumer().Replay(t.Context(), letters(t, f.in.Consumer())[0],
		consumer.Replay{Key: "1#2"}); !ran || err != nil {
		t.Fatalf("Replay: %v, %v", ran, err)
	}
	f.forward(t)
	wantCount(t, f.store, "1", 1)
	wantCount(t, f.store, "1#2", 1)
	claim, found, err := f.store.Lookup(t.Context(), dedup.Key{Consumer: "billing", Tenant: "shop/live", ID: "1#2"})
	if !found || err != nil || claim.Fingerprint != dedup.FingerprintOf([]byte("genuine")) {
		t.Errorf("found %v, %v, fingerprint %v; want that of the Verifier", found, err, claim.Fingerprint)
	}
	if found := letters(t, f.consumer); len(found) != 0 {
		t.Errorf("letters %v", found)
	}
}

// A backfill hands events to the consumer behind the Inbox. The consumer must know the aliases of those that came
// through the Inbox.
func TestABackfillBesideAnInbox(t *testing.T) {
	f := newForwarding(t)
	f.deliver(t, f.in, "1", "paid", "object:cs_1")
	f.deliver(t, f.in, "2", "paid", "object:cs_1") // the second event of one change
	for _, id := range []string{"1", "2"} {
		f.deliver(t, f.consumer, id, "paid", "object:cs_1")
	}
	wantCount(t, f.store, "1", 1)
	wantCount(t, f.store, "2", 0)
	for _, c := range []*consumer.Consumer[tx]{f.in.Consumer(), f.consumer} {
		if found := letters(t, c); len(found) != 1 || found[0].Message.ID != "2" ||
			found[0].Cause != observe.CauseKnownContent {
			t.Errorf("letters %v, want 2 as known content", found)
		}
	}
}

// A person has decided that an event is no replay. The consumer behind the Inbox does not ask again.
func TestAKnownContentIsDecidedOnce(t *testing.T) {
	f := newForwarding(t)
	f.deliver(t, f.in, "1", "paid", "object:cs_1")
	f.deliver(t, f.in, "2", "paid", "object:cs_1", "body:2")
	if ran, err := f.in.Consumer().Replay(t.Context(), letters(t, f.in.Consumer())[0],
		consumer.Replay{AsNew: true}); !ran || err != nil {
		t.Fatalf("Replay: %v, %v", ran, err)
	}
	f.forward(t)
	f.deliver(t, f.consumer, "3", "paid", "body:2")
	for id, want := range map[string]int{"1": 1, "2": 1, "3": 0} {
		wantCount(t, f.store, id, want)
	}
	if found := letters(t, f.consumer); len(found) != 1 || found[0].Message.ID != "3" {
		t.Errorf("letters %v, want one of 3", found)
	}
}

// A header that looks like ours cannot replace what is claimed.
func TestReservedHeadersAreParked(t *testing.T) {
	store := consumertest.NewStore()
	out := newPending(store)
	in := newInbox(t, store, out)
	for _, name := range []string{"inbox-id", "Inbox-X", "txonce-id"} {
		errs := in.ProcessBatch(t.Context(), []*consumer.Message{{ID: name, Tenant: "shop", Headers: map[string]string{name: "x"}}})
		if errs[0] != nil {
			t.Errorf("%s: %v", name, errs[0])
		}
	}
	if found := letters(t, in.Consumer()); len(found) != 3 || len(out.committed()) != 0 {
		t.Errorf("%d letters, %d forwarded", len(found), len(out.committed()))
	}
}

// The whole way: a delivery is stored, forwarded and handled, while the consumer's database fails for 10 minutes and
// handlers fail.
func TestStoreAndForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 30
		s, store := newShop(), consumertest.NewStore()
		s.source.GiveUpAfter = 0
		out := newPending(store)
		in := newInbox(t, store, out)
		hooks := &traced{}
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: in, Trace: hooks.trace()})

		work := consumertest.NewStore() // its database fails; that of the Inbox and the outbox does not
		var mu sync.Mutex
		failures, order := map[string]int{}, map[string][]string{}
		c := billing(t, consumer.Config[tx]{Store: work, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.ID == "07" {
				return errors.New("poison")
			}
			if failures[m.ID]++; failures[m.ID] < 2 {
				return errors.New("not yet")
			}
			order[m.OrderingKey] = append(order[m.OrderingKey], m.ID)
			return count(ctx, tx, m)
		}})
		var all []shopEvent
		for i := range events {
			all = append(all, shopEvent{ID: fmt.Sprintf("%02d", i), Type: "paid", Key: fmt.Sprint("order-", i%3)})
		}
		for range 3 { // each event arrives three times
			wantStatus(t, s.send(t, r, all...), 200)
		}
		if n := len(out.committed()); n != events {
			t.Fatalf("%d events forwarded, want %d", n, events)
		}
		if a, d := strings.Count(hooks.String(), "accepted"), strings.Count(hooks.String(), "duplicate"); a != events ||
			d != 2*events {
			t.Errorf("%d events accepted and %d duplicates, want %d and %d", a, d, events, 2*events)
		}
		out.move(t)

		work.Database().Stop()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		rl := newRelay(t, relay.Config{Queue: out.queue, Publishers: map[string]outbox.Publisher{in.Topic(): newWorker(t, webhook.WorkerConfig{Processor: c})}})
		go func() { ended <- rl.Run(ctx) }()
		<-time.After(10 * time.Minute)
		if found := letters(t, in.Consumer()); len(found) != 0 {
			t.Errorf("parked by the inbox: %v", found)
		}
		work.Database().Start()
		<-time.After(10 * time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		for _, e := range all {
			want := 1
			if e.ID == "07" {
				want = 0
			}
			wantCount(t, work, e.ID, want)
		}
		for key, ids := range order {
			if !slices.IsSorted(ids) {
				t.Errorf("%s: handled in the order %v", key, ids)
			}
		}
		if found := letters(t, c); len(found) != 1 || found[0].Message.ID != "07" ||
			found[0].Message.Tenant != "shop/live" {
			t.Errorf("letters %v, want one of 07", found)
		}
		stats, err := out.queue.Stats(t.Context())
		if err != nil || stats.Pending != 0 || stats.Parked != 0 {
			t.Errorf("the outbox has %d pending and %d parked messages, %v", stats.Pending, stats.Parked, err)
		}
		for _, name := range []string{"billing/inbox", "billing"} {
			db := store
			if name == "billing" {
				db = work
			}
			if _, found, err := db.Lookup(t.Context(),
				dedup.Key{Consumer: name, Tenant: "shop/live", ID: "00"}); !found || err != nil {
				t.Errorf("E19: no claim of %s: %v", name, err)
			}
		}
	})
}

// The inbox and the worker share a database, as they usually do: under one name the worker would see duplicates only.
func TestE19OneDatabase(t *testing.T) {
	s, store := newShop(), consumertest.NewStore()
	out := newPending(store)
	in, c := newInbox(t, store, out), billing(t, consumer.Config[tx]{Store: store})
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: in})
	wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 200)
	out.move(t)
	w := newWorker(t, webhook.WorkerConfig{Processor: c})
	if n, err := newRelay(t, relay.Config{Queue: out.queue, Publisher: w}).RunOnce(t.Context()); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantCount(t, store, "1", 1)
	if errs := w.Publish(t.Context(), out.committed()); errs[0] != nil { // a repeat of the relay
		t.Error(errs[0])
	}
	wantCount(t, store, "1", 1)
}
