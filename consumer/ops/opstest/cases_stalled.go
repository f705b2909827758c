package opstest

import (
	"context"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// stalledCases are about letters and requests that must not keep others waiting, and about letters that change while
// they are replayed.
func stalledCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a letter whose worker ended comes after the others", testEndedComesLast[TTx]},
		{"a letter that ends its workers fails", testEndsWorkers[TTx]},
		{"many requests that wait for their turn keep no other waiting", testManyRequests[TTx]},
		{"a slow request ends with its last letter", testSlowRequestEnds[TTx]},
		{"a letter that is discarded while its handler runs", testDiscardedMeanwhile[TTx]},
		{"a letter whose outcome became unknown after it was taken", testReplayChanged[TTx]},
	}
}

// lose takes a letter as a worker does that ends at once, and returns the letter's key.
func lose[TTx any](t *testing.T, s store[TTx]) string {
	t.Helper()
	r, found, _, err := take(bounded(t), s, name, 0) // the lease is over at once
	if !found || err != nil {
		t.Fatal(found, err)
	}
	return r.Letter.Record.Key.ID
}

func testEndedComesLast[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	request(t, s.Operator(), replayRequest())
	for i, want := range []string{"order-000", "order-001", "order-002", "order-000"} {
		if got := lose(t, s); got != want {
			t.Errorf("worker %d takes %s, want %s", i+1, got, want)
		}
	}
}

func testEndsWorkers[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	a := request(t, s.Operator(), replayRequest())
	for range 5 {
		lose(t, s)
		r, found, _, err := take(bounded(t), s, name, time.Hour)
		if !found || err != nil {
			t.Fatal(found, err)
		}
		if err := s.ReturnReplay(bounded(t), r.Action, r.Letter.ID, "", "", 0); err != nil {
			// it is in flight, for example
			t.Fatal(err)
		}
	}
	a = replay(t, s.Operator(), a.ID, e.consumer(t, s, nil))
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID})
	if err != nil || len(results) != 1 || results[0].Outcome != observe.Parked ||
		results[0].Cause != observe.CauseCrashed {
		t.Errorf("%+v, %v; want a failure because five workers ended", results, err)
	}
	e.wantEffects(t)
}

func testManyRequests[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(201)...)
	slow := replayRequest()
	slow.Filter.Limit, slow.Rate = 2, ops.MinRate
	for range 100 {
		if a := request(t, s.Operator(), slow); a.Matched != 2 {
			t.Fatalf("%d letters", a.Matched)
		}
	}
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, e.consumer(t, s, nil))
	if a.Results[observe.Processed] != 1 {
		t.Errorf("ended %+v", a)
	}
}

func testSlowRequestEnds[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	slow := replayRequest()
	slow.Rate = ops.MinRate
	if a := replay(t, s.Operator(), request(t, s.Operator(), slow).ID,
		e.consumer(t, s, nil)); a.Results[observe.Processed] != 1 {
		t.Errorf("ended %+v", a)
	}
}

// The request must not wait for the end of the letter's lease.
func testDiscardedMeanwhile[TTx any](t *testing.T, e *env[TTx]) {
	if e.oneWriter {
		return // nothing can be discarded meanwhile
	}
	s := e.node(t)
	unkeyed := message("", "orders") // no claim keeps the others away
	unkeyed.Headers = map[string]string{"id": "order-1"}
	e.park(t, s, unkeyed)
	letter := e.letters(t, s)[0]
	cfg := e.config(s, nil)
	cfg.Key = func(m *consumer.Message) (string, error) { return m.Headers["id"], nil }
	cfg.Handle = func(ctx context.Context, tx TTx, _ *consumer.Message) error {
		return e.node(t).Operator().DiscardLetter(ctx, ops.ActionID{1}, letter)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	began := time.Now()
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	if took := time.Since(began); a.Results[observe.Duplicate] != 1 || took > soon {
		t.Errorf("ended after %v: %+v", took, a)
	}
}

// Another process gets the message again, and its handler ends the transaction. The letter says so, and must not be
// removed because its key is claimed.
func testReplayChanged[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	letter := e.letters(t, s)[0]
	changed := false
	cfg := e.config(s, nil)
	cfg.Trace = &consumer.Trace{Start: func(ctx context.Context, _ *consumer.Delivery) context.Context {
		if changed {
			return ctx
		}
		changed = true
		letter.Cause, letter.Error = observe.CauseUnknown, "its handler ended the transaction"
		if err := s.InTx(ctx, []dedup.Record{letter.Record},
			func(tx TTx, _ []dedup.Claim) error { return s.Park(ctx, tx, letter) }); err != nil {
			t.Error(err)
		}
		return ctx
	}}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID})
	if err != nil || len(results) != 1 || results[0].Outcome != observe.Parked ||
		results[0].Cause != observe.CauseUnknown {
		t.Errorf("%+v, %v; want a failure because the outcome is unknown", results, err)
	}
	if left := e.letters(t, s); len(left) != 1 || left[0].Cause != observe.CauseUnknown {
		t.Errorf("letters %+v, want one of unknown outcome", left)
	}
}
