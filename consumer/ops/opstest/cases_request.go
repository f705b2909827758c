package opstest

import (
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

func (e *env[TTx]) options() deduptest.Options { return deduptest.Options{} }

func requestCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"an unexpected number is refused and leaves nothing", testExpect[TTx]},
		{"a letter belongs to one open request", testOneRequest[TTx]},
		{"the end of a request releases its letters", testEnd[TTx]},
		{"actions are listed", testActions[TTx]},
		{"a letter is discarded", testDiscard[TTx]},
		{"a discard claims the aliases", testDiscardAliases[TTx]},
		{"a discard uses no window that is given up", testDiscardWindow[TTx]},
		{"letters are discarded by filter", testDiscardLetters[TTx]},
	}
}

func testExpect[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	r := replayRequest()
	r.Expect = 2
	if _, err := s.Operator().Request(bounded(t), r); !errors.Is(err, ops.ErrExpected) {
		t.Errorf("%v, want ErrExpected", err)
	}
	if actions, err := s.Operator().Actions(bounded(t), ops.ActionFilter{}); len(actions) != 0 || err != nil {
		t.Errorf("%+v, %v", actions, err)
	}
	if _, found, _, err := take(bounded(t), s, name, 0); found || err != nil {
		t.Errorf("a letter is marked: %v, %v", found, err)
	}
	r.Expect = 3
	request(t, s.Operator(), r)
}

func testOneRequest[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	r := replayRequest()
	r.Filter.Limit = 2 // the oldest
	first, second := request(t, s.Operator(), r), request(t, s.Operator(), replayRequest())
	if first.Matched != 2 || second.Matched != 1 {
		t.Errorf("%d and %d letters, want 2 and 1", first.Matched, second.Matched)
	}
}

func testEnd[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	a := request(t, s.Operator(), replayRequest())
	taken, found, _, err := take(bounded(t), s, name, 0)
	if !found || err != nil {
		t.Fatal(found, err)
	}
	for range 2 {
		if a, err = s.Operator().End(bounded(t), a.ID, "a mistake"); err != nil || a.Ended.IsZero() ||
			a.Note != "a mistake" || a.Waiting != 0 || a.Matched != 2 || a.Results[observe.Held] != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	err = e.Tx(bounded(t), e.options(), func(tx TTx) error { return s.SettleReplay(bounded(t), tx, a.ID, taken.Letter, observe.Processed) })
	if !errors.Is(err, consumer.ErrNotParked) {
		t.Errorf("settled after the end: %v", err)
	}
	if again := request(t, s.Operator(), replayRequest()); again.Matched != 2 {
		t.Errorf("%d letters can be requested again, want 2", again.Matched)
	}
	if _, err := s.Operator().End(bounded(t), ops.ActionID{1}, ""); !errors.Is(err, ops.ErrNoAction) {
		t.Errorf("%v, want ErrNoAction", err)
	}
}

func testActions[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t).Operator()
	first := request(t, s, replayRequest())
	second := request(t, s, ops.Request{
		Kind: ops.Unpark, Who: "bob", Reason: "the topic is there", Note: "topic gone",
		Expect: -1,
	})
	for _, tc := range []struct {
		filter ops.ActionFilter
		want   []ops.ActionID
	}{
		{ops.ActionFilter{}, []ops.ActionID{second.ID, first.ID}},
		{ops.ActionFilter{Limit: 1}, []ops.ActionID{second.ID}},
		{ops.ActionFilter{Kind: ops.Replay}, []ops.ActionID{first.ID}},
		{ops.ActionFilter{Consumer: name}, []ops.ActionID{first.ID}},
		{ops.ActionFilter{Open: true}, []ops.ActionID{first.ID}},
		{ops.ActionFilter{Before: second.Requested}, []ops.ActionID{first.ID}},
	} {
		found, err := s.Actions(bounded(t), tc.filter)
		if err != nil || len(found) != len(tc.want) {
			t.Fatalf("%+v: %d actions, %v", tc.filter, len(found), err)
		}
		for i := range found {
			if found[i].ID != tc.want[i] {
				t.Errorf("%+v: %v, want %v", tc.filter, found[i].ID, tc.want[i])
			}
		}
	}
}

func testDiscard[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	a := request(t, s.Operator(), ops.Request{
		Kind: ops.Discard, Who: "ann", Reason: "test data",
		Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: -1,
	})
	letter := e.letters(t, s)[0]
	if err := s.Operator().DiscardLetter(bounded(t), a.ID, letter); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator().DiscardLetter(bounded(t), a.ID, letter); err == nil {
		t.Error("it was discarded twice")
	}
	if a, err := s.Operator().End(bounded(t), a.ID, "done"); err != nil || a.Results[observe.Rejected] != 1 ||
		len(e.letters(t, s)) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), messages(1)[0]); err != nil { // a late delivery
		t.Fatal(err)
	}
	e.wantEffects(t)
}

// A discarded message does not run when it is delivered again, and another message with one of its aliases does not run
// either.
func testDiscardAliases[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, aliased("order-1", "known", "x"))
	r := ops.Request{
		Kind: ops.Discard, Who: "ann", Reason: "test data",
		Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: 1,
	}
	if _, err := ops.DiscardLetters(bounded(t), s.Operator(), r); err != nil {
		t.Fatal(err)
	}
	if err := e.consumer(t, s, nil).Process(bounded(t), aliased("order-2", "x")); err != nil {
		t.Fatal(err)
	}
	e.wantEffects(t)
	if left := e.letters(t, s); len(left) != 1 || left[0].Cause != observe.CauseKnownContent {
		t.Errorf("left %+v, want order-2 as known content", left)
	}
}

// A window that is used again counts for the horizon: messages that are older than it would be unprovable.
func testDiscardWindow[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	short := e.config(s, func(*consumer.Message) error { return consumer.Permanent(errBroken) })
	short.Window = dedup.MinWindow
	c, err := consumer.New(short)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Process(bounded(t), messages(1)[0]); err != nil {
		t.Fatal(err)
	}
	c.Close()
	e.Age(t, 48*time.Hour)
	s = e.node(t)
	if err := e.consumer(t, s, nil).Process(bounded(t), message("order-9", "orders")); err != nil {
		// with the default window
		t.Fatal(err)
	}
	before, err := s.Operator().Status(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	r := ops.Request{
		Kind: ops.Discard, Who: "ann", Reason: "test data",
		Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: 1,
	}
	if _, err := ops.DiscardLetters(bounded(t), e.node(t).Operator(), r); err != nil {
		t.Fatal(err)
	}
	after, err := s.Operator().Status(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	old, now := before.Consumers[0].Windows, after.Consumers[0].Windows
	if len(old) != 2 || old[0].Window != dedup.MinWindow || len(now) != 2 || !now[0].UsedUntil.Equal(old[0].UsedUntil) {
		t.Errorf("windows %+v, and after the discard %+v", old, now)
	}
	claim, found, err := s.Lookup(bounded(t), dedup.Key{Consumer: name, ID: "order-000"})
	if !found || err != nil || claim.ExpiresAt.Before(after.Now.Add(dedup.DefaultWindow-time.Hour)) {
		t.Errorf("claim %+v, %v, %v; want it to be kept as long as others", claim, found, err)
	}
}

func testDiscardLetters[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	msgs := messages(3)
	msgs[1].Topic = "refunds"
	e.park(t, s, msgs...)
	r := ops.Request{
		Kind: ops.Discard, Who: "ann", Reason: "test data",
		Filter: consumer.DeadLetterFilter{Consumer: name, Topic: "orders"}, Expect: 3,
	}
	if _, err := ops.DiscardLetters(bounded(t), s.Operator(), r); !errors.Is(err, ops.ErrExpected) {
		t.Errorf("%v, want ErrExpected", err)
	}
	r.Expect = 2
	a, err := ops.DiscardLetters(bounded(t), s.Operator(), r)
	if err != nil || a.Results[observe.Rejected] != 2 || a.Ended.IsZero() || a.Matched != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if left := e.letters(t, s); len(left) != 1 || left[0].Message.Topic != "refunds" {
		t.Errorf("left: %+v", left)
	}
	r.Filter = consumer.DeadLetterFilter{}
	if _, err := ops.DiscardLetters(bounded(t), s.Operator(), r); err == nil {
		t.Error("a filter without condition is accepted")
	}
}
