package opstest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func parkedCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a message that is parked after a look is not changed", testParkedLater[TTx]},
		{"a look that is outdated changes nothing", testParkedOutdated[TTx]},
		{"a letter that is parked after a plan is not replayed", testLettersLater[TTx]},
		{"a limited search finds each letter once", testReach[TTx]},
		{"a replay that has ended keeps its counts", testCounts[TTx]},
	}
}

// parkOut enqueues a message of the topic charged for each id, and parks it.
func (e *env[TTx]) parkOut(t *testing.T, s store[TTx], ids ...string) {
	t.Helper()
	cfg := e.config(s, nil)
	cfg.Handle = func(ctx context.Context, tx TTx, m *consumer.Message) error {
		return s.Store.(outbox.Writer[TTx]).Enqueue(ctx, tx,
			outbox.Message{Topic: "charged", ID: "out " + m.ID, Payload: []byte(m.ID)})
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, id := range ids {
		if err := c.Process(bounded(t), message(id, "orders")); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s.Store.(driver.Queue), len(ids), func(string) driver.Verdict { return driver.Parked })
}

func parkedNow[TTx any](t *testing.T, s store[TTx]) []outbox.ParkedMessage {
	t.Helper()
	found, err := s.Operator().Outbox().Parked(bounded(t), outbox.ParkedFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pass waits until the database's clock is later than at. That of SQLite counts milliseconds.
func pass[TTx any](t *testing.T, s store[TTx], at time.Time) {
	t.Helper()
	for ctx := bounded(t); ; {
		status, err := s.Operator().Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if status.Now.After(at) {
			return
		}
	}
}

func testParkedLater[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	for _, kind := range []ops.Kind{ops.Unpark, ops.DiscardOutbox} {
		shown, later := []string{"a " + string(kind), "b " + string(kind), "c " + string(kind)}, "later "+string(kind)
		e.parkOut(t, s, shown...)
		filter := outbox.ParkedFilter{Topic: "charged"}
		if part, err := ops.ChooseParked(bounded(t), s.Operator(), filter, 2); len(part.Seqs) != 2 || !part.More ||
			err != nil {
			t.Errorf("%+v, %v; want 2 of 3", part, err)
		}
		look, err := ops.ChooseParked(bounded(t), s.Operator(), filter, 3)
		if err != nil || len(look.Seqs) != 3 || look.More {
			t.Fatalf("%+v, %v; want 3", look, err)
		}
		pass(t, s, look.Newest)
		e.parkOut(t, s, later)
		filter.Until = look.Newest.Add(time.Microsecond)
		a, n, err := ops.ChangeParked(bounded(t), s.Operator(),
			ops.Request{Kind: kind, Who: "ann", Reason: "the broker is mended", Expect: 3}, filter)
		if n != 3 || err != nil || a.Kind != kind {
			t.Errorf("%d, %+v, %v; want 3 messages changed", n, a, err)
		}
		left := parkedNow(t, s)
		if len(left) != 1 || left[0].ID != "out "+later {
			t.Errorf("%s: parked %+v; want the later one", kind, left)
		}
		if _, err := s.Operator().Outbox().Discard(bounded(t), left[0].Seq); err != nil {
			t.Fatal(err)
		}
		if kind == ops.Unpark {
			settle(t, s.Store.(driver.Queue), 3, func(string) driver.Verdict { return driver.Sent })
		}
	}
}

func testParkedOutdated[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.parkOut(t, s, "a", "b", "c")
	look, err := ops.ChooseParked(bounded(t), s.Operator(), outbox.ParkedFilter{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Operator().Outbox().Unpark(bounded(t), look.Seqs[1]); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	r := ops.Request{Kind: ops.DiscardOutbox, Who: "ann", Reason: "test data", Expect: 3}
	if _, n, err := ops.ChangeParked(bounded(t), s.Operator(), r, outbox.ParkedFilter{Topic: "charged"}); n != 0 ||
		!errors.Is(err, ops.ErrExpected) {
		t.Errorf("%d, %v; want ErrExpected", n, err)
	}
	r.Expect = -1
	if _, n, err := ops.ChangeParked(bounded(t), s.Operator(), r,
		outbox.ParkedFilter{Until: time.Now().Add(time.Hour)}); n != 0 || err == nil {
		t.Errorf("%d, %v; want a discard without a condition refused", n, err)
	}
	actions, err := s.Operator().Actions(bounded(t), ops.ActionFilter{})
	if err != nil || len(actions) != 0 || len(parkedNow(t, s)) != 2 {
		t.Errorf("actions %+v, %v, parked %+v; want nothing changed", actions, err, parkedNow(t, s))
	}
}

func testLettersLater[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	msgs := messages(4)
	e.park(t, s, msgs[:3]...)
	p := plan(t, s.Operator(), replayRequest())
	pass(t, s, p.Newest)
	e.park(t, s, msgs[3])
	r := replayRequest()
	r.Filter.Until, r.Expect = p.Newest.Add(time.Microsecond), p.Match
	if a := request(t, s.Operator(), r); a.Matched != 3 {
		t.Errorf("%d letters are marked, want the 3 of the plan", a.Matched)
	}
}

func testReach[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(12)...)
	other := e.named(t, s, "mailer", func(*consumer.Message) error { return consumer.Permanent(errBroken) })
	for i := range 5 {
		if err := other.Process(bounded(t), message(fmt.Sprint("mail-", i), "mails")); err != nil {
			t.Fatal(err)
		}
	}
	for what, filter := range map[string]consumer.DeadLetterFilter{
		"one consumer": {Consumer: name, Error: errBroken.Error()}, "all consumers": {Error: errBroken.Error()},
		"none": {Topic: "refunds"},
	} {
		filter.Limit = 1000
		want, err := s.Operator().DeadLetters(bounded(t), filter)
		if err != nil {
			t.Fatal(err)
		}
		var found []consumer.DeadLetterID
		searches := 0
		for part := filter; ; searches++ {
			since, err := s.Operator().Keys().Reach(bounded(t), part, 4)
			if err != nil || searches > 20 {
				t.Fatalf("%s: %d searches, %v", what, searches, err)
			}
			part.Since = since
			letters, err := s.Operator().DeadLetters(bounded(t), part)
			if err != nil {
				t.Fatal(err)
			}
			for i := range letters {
				found = append(found, letters[i].ID)
			}
			if since.IsZero() {
				break
			}
			part.Since, part.After = time.Time{}, consumer.DeadLetterCursor{First: since}
		}
		if !slices.EqualFunc(found, want, func(id consumer.DeadLetterID,
			l consumer.DeadLetter,
		) bool {
			return id == l.ID
		}) {
			t.Errorf("%s: found %d letters, want %d", what, len(found), len(want))
		}
		if searches < 2 {
			t.Errorf("%s: %d searches; they are not limited", what, searches)
		}
	}
	since, err := s.Operator().Keys().Reach(bounded(t), consumer.DeadLetterFilter{Consumer: name}, 4)
	if !since.IsZero() || err != nil {
		t.Errorf("%v, %v; want no limit where each letter matches", since, err)
	}
	p, err := ops.PlanReplay(bounded(t), s.Operator(),
		ops.Request{Filter: consumer.DeadLetterFilter{Consumer: name, Topic: "refunds"}}, 1)
	if err != nil || !p.More || p.Searched.IsZero() || p.Match != 0 {
		t.Errorf("plan %+v, %v; want it to say that it has not searched everything", p, err)
	}
}

// The rows of the results are not read again.
func testCounts[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	c := e.consumer(t, s, func(m *consumer.Message) error {
		if m.ID == "order-001" {
			return consumer.Permanent(errBroken)
		}
		return nil
	})
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	if a.Matched != 3 || a.Waiting != 0 || a.Results[observe.Processed] != 2 || a.Results[observe.Parked] != 1 {
		t.Errorf("%+v; want 2 processed and 1 parked", a)
	}
	r := replayRequest()
	ended, err := s.Operator().End(bounded(t), request(t, s.Operator(), r).ID, "not yet")
	if err != nil || ended.Matched != 1 || ended.Results[observe.Held] != 1 {
		t.Errorf("%+v, %v; want 1 held", ended, err)
	}
	again, err := s.Operator().Actions(bounded(t), ops.ActionFilter{ID: a.ID})
	if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], a) {
		t.Errorf("%+v, %v; want %+v", again, err, a)
	}
}
