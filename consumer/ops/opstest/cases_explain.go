package opstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func explainCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a key is explained", testExplain[TTx]},
		{"a key of an HTTP request is not taken for a new one", testExplainHTTP[TTx]},
		{"the messages that a handler has enqueued are counted", testOutgoing[TTx]},
		{"a discard is explained", testExplainDiscards[TTx]},
		{"keys are found by their hash, and listed", testKeys[TTx]},
	}
}

func testExplain[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), message("order-1", "orders")); err != nil {
		t.Fatal(err)
	}
	other := message("order-1", "orders")
	other.Payload = []byte("other content")
	if err := c.Process(bounded(t), other); err != nil { // a mismatch
		t.Fatal(err)
	}
	c.Close()
	other = message("order-4", "orders")
	other.Headers = map[string]string{"tenant": "acme"}
	e.park(t, s, message("order-2", "orders"), other)
	old := consumer.DeadLetter{
		ID: consumer.DeadLetterID{1}, Record: record("order-5"), Message: *message("order-5", "orders"),
		Cause: observe.CauseUnprovable, Error: "too old",
	}
	if err := e.Tx(bounded(t), e.options(), func(tx TTx) error { return s.Park(bounded(t), tx, old) }); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		id      string
		opts    ops.ExplainOptions
		verdict ops.Verdict
		letters int
		claimed bool
	}{
		{"order-1", ops.ExplainOptions{}, ops.Duplicate, 1, true},
		{
			"order-1",
			ops.ExplainOptions{Fingerprint: dedup.FingerprintOf([]byte("other content"))},
			ops.Mismatch,
			1, true,
		},
		{"order-2", ops.ExplainOptions{}, ops.First, 1, false},
		{"order-3", ops.ExplainOptions{}, ops.First, 0, false},
		{"order-4", ops.ExplainOptions{}, ops.First, 0, false}, // the letter is a tenant's
		{"order-5", ops.ExplainOptions{}, ops.Unprovable, 1, false},
		{"order-5", ops.ExplainOptions{Fingerprint: dedup.FingerprintOf([]byte("other content"))}, ops.First, 1, false},
	} {
		x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: tc.id}, tc.opts)
		if err != nil || x.Verdict != tc.verdict || len(x.Letters) != tc.letters || x.Claimed.IsZero() == tc.claimed ||
			x.Claim.ExpiresAt.IsZero() == tc.claimed {
			t.Errorf("%s: %+v, %v; want %s and %d letters", tc.id, x, err, tc.verdict, tc.letters)
		}
	}
}

// The letter of a discarded message is gone, and its claim looks like that of a message that was processed.
func testExplainDiscards[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), message("order-1", "orders")); err != nil {
		t.Fatal(err)
	}
	other := message("order-1", "orders")
	other.Payload = []byte("other content")
	if err := c.Process(bounded(t), other); err != nil { // a mismatch
		t.Fatal(err)
	}
	c.Close()
	ofTenant := message("order-2", "orders")
	ofTenant.Headers = map[string]string{"tenant": "acme"}
	e.park(t, s, message("order-2", "orders"), message("order-3", "orders"), ofTenant)
	var letters []consumer.DeadLetter
	for _, l := range e.letters(t, s) {
		if l.Record.Key.ID != "order-3" && l.Record.Key.Tenant == "" {
			letters = append(letters, l)
		}
	}
	request := func(filter consumer.DeadLetterFilter) ops.Action {
		t.Helper()
		filter.Consumer = name
		a, err := ops.DiscardLetters(bounded(t), s.Operator(),
			ops.Request{Kind: ops.Discard, Who: "ann", Reason: "test data", Filter: filter, Expect: 1})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	actions := map[string]ops.Action{}
	for _, l := range letters {
		actions[l.Record.Key.ID] = request(consumer.DeadLetterFilter{ID: l.ID})
	}
	for id, claimed := range map[string]bool{"order-1": false, "order-2": true} {
		x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: id}, ops.ExplainOptions{})
		if err != nil || x.Verdict != ops.Duplicate || len(x.Discarded) != 1 {
			t.Errorf("%s: %+v, %v; want one discard", id, x, err)
			continue
		}
		d := x.Discarded[0]
		_, by := x.ClaimedByDiscard()
		if d.Who != "ann" || d.Reason != "test data" || d.Action != actions[id].ID ||
			d.Letter == (consumer.DeadLetterID{}) || d.At.Before(actions[id].Requested) ||
			d.Claimed != claimed || by != claimed {
			t.Errorf("%s: %+v, the claim is the discard's: %v", id, d, by)
		}
	}
	for _, key := range []dedup.Key{
		{Consumer: name, ID: "order-3"},
		{Consumer: name, Tenant: "acme", ID: "order-2"},
		{Consumer: "mailer", ID: "order-2"},
	} {
		if x, err := ops.Explain(bounded(t), s.Operator(), key, ops.ExplainOptions{}); err != nil ||
			len(x.Discarded) != 0 {
			t.Errorf("%v: %+v, %v; want no discard", key, x, err)
		}
	}
	// The key is forgotten, and then the message is delivered again and processed: the discard has not made that claim.
	x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: "order-2"}, ops.ExplainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Claimed = x.Claimed.Add(2 * dedup.MaxAhead)
	if d, ok := x.ClaimedByDiscard(); ok {
		t.Errorf("a later claim is the discard's: %+v", d)
	}
}

// Each message enqueues three messages to one topic, one of them in the middle of others with their own IDs, and a
// delayed one to another.
func testOutgoing[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	writer, queue := s.Store.(outbox.Writer[TTx]), s.Store.(driver.Queue)
	c, err := consumer.New(consumer.Config[TTx]{
		Name: name, Store: s.Store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx TTx, m *consumer.Message) error {
			out := func(topic, id, text string) outbox.Message {
				return outbox.Message{Topic: topic, ID: id, Payload: []byte(m.ID + "/" + text)}
			}
			later := out("mail", "", "later")
			later.NotBefore = time.Now().Add(time.Hour)
			return writer.Enqueue(ctx, tx, out("charged", "", "0"), later, out("charged", "own id of "+m.ID, "own"),
				out("charged", "", "1"), out("charged", "", "2"))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, id := range []string{"order-1", "order-2"} {
		if err := c.Process(bounded(t), message(id, "orders")); err != nil {
			t.Fatal(err)
		}
	}
	want := func(id string, want ops.Outgoing) {
		t.Helper()
		got, err := s.Operator().Keys().Outgoing(bounded(t), dedup.Key{Consumer: name, ID: id})
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", id, got, err, want)
		}
	}
	want("order-1", ops.Outgoing{Pending: 3, Delayed: 1})
	settle(t, queue, 8, func(payload string) driver.Verdict {
		switch {
		case payload == "order-1/1":
			return driver.Parked
		case payload == "order-1/2":
			return driver.Returned
		}
		return driver.Sent
	})
	want("order-1", ops.Outgoing{Pending: 1, Delayed: 1, Parked: 1, Confirmed: 1})
	want("order-2", ops.Outgoing{Delayed: 1})
	want("order-3", ops.Outgoing{})

	x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: "order-1"}, ops.ExplainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for discards := range 2 {
		out, err := ops.ExplainOutbox(bounded(t), s.Operator(), x)
		if err != nil || out != (ops.Outgoing{Pending: 1, Delayed: 1, Parked: 1, Confirmed: 1, Discards: discards}) {
			t.Errorf("%+v, %v; want %d discards", out, err, discards)
		}
		request(t, s.Operator(), ops.Request{
			Kind: ops.DiscardOutbox, Who: "ann", Reason: "test data",
			Note: "messages [1]", Expect: -1,
		})
	}
}

// settle leases n messages and settles each once as verdict says.
func settle(t *testing.T, queue driver.Queue, n int, verdict func(payload string) driver.Verdict) {
	t.Helper()
	ctx := bounded(t)
	session, err := queue.Open(ctx, driver.SessionOptions{Name: "suite", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	for len(done) < n {
		if _, err := session.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		leased, err := session.Lease(ctx, driver.Want{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []driver.Outcome
		for _, m := range leased {
			done[string(m.Payload)] = true
			outcomes = append(outcomes, driver.Outcome{Leased: m, Verdict: verdict(string(m.Payload)), Err: errBroken})
		}
		if err := session.Settle(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
	}
	if err := session.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func testKeys[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, nil)
	tenants := message("order-2", "orders")
	tenants.Headers = map[string]string{"tenant": "acme"}
	for _, m := range []*consumer.Message{message("order-1", "orders"), tenants} {
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	e.park(t, s, message("order-3", "orders"))
	one, two, three := dedup.Key{Consumer: name, ID: "order-1"},
		dedup.Key{Consumer: name, Tenant: "acme", ID: "order-2"}, dedup.Key{Consumer: name, ID: "order-3"}
	for _, key := range []dedup.Key{one, two, three} {
		got, found, err := s.Operator().Keys().KeyOf(bounded(t), key.Hash())
		if err != nil || !found || got != key {
			t.Errorf("the key of its hash is %v, %v, %v; want %v", got, found, err, key)
		}
	}
	if got, found, err := s.Operator().Keys().KeyOf(bounded(t), dedup.KeyHash{1}); found || err != nil {
		t.Errorf("an unknown hash: %v, %v, %v", got, found, err)
	}
	var all []string
	each := func(most int) func(dedup.Key) bool {
		all = nil
		return func(key dedup.Key) bool { all = append(all, key.String()); return len(all) < most }
	}
	if err := errors.Join(s.Operator().Keys().EachKey(bounded(t), each(1))); err != nil || len(all) != 1 {
		t.Errorf("it goes on after false: %q, %v", all, err)
	}
	if err := s.Operator().Keys().EachKey(bounded(t), each(100)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	if want := []string{one.String(), three.String(), two.String()}; !slices.Equal(all, want) {
		t.Errorf("keys %q, want %q", all, want)
	}
	var keys []dedup.Key
	for i := range 250 {
		keys = append(keys, dedup.Key{Consumer: name, ID: fmt.Sprint("unknown ", i)})
	}
	claimed, err := s.Operator().Keys().Claimed(bounded(t), append(keys, one, two, three))
	if err != nil || len(claimed) != 2 || claimed[one] != dedup.FingerprintOf([]byte("payload of order-1")) ||
		claimed[two] != dedup.FingerprintOf([]byte("payload of order-2")) {
		t.Errorf("claimed %v, %v", claimed, err)
	}

	compact := e.Open(t, deduptest.Options{Wait: patient, Compact: true})
	hidden := dedup.Record{Key: dedup.Key{Consumer: name, ID: strings.Repeat("x", 20)}}
	if err := compact.InTx(bounded(t), []dedup.Record{hidden},
		func(TTx, []dedup.Claim) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got, found, err := s.Operator().Keys().KeyOf(bounded(t), hidden.Key.Hash()); found || err != nil {
		t.Errorf("a compact claim tells its key: %v, %v", got, err)
	}
}
