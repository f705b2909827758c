package opstest

import (
	"errors"
	"reflect"
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
		{"a discard uses no window that is given up", testDiscardWindow[TTx]},
		{"letters are discarded by filter", testDiscardLetters[TTx]},
		{"a key is explained", testExplain[TTx]},
		{"a replay is planned", testPlan[TTx]},
		{"a plan knows what is unprovable by now", testPlanUnprovable[TTx]},
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
	if _, found, _, err := s.TakeReplay(bounded(t), name, 0); found || err != nil {
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
	taken, found, _, err := s.TakeReplay(bounded(t), name, 0)
	if !found || err != nil {
		t.Fatal(found, err)
	}
	for range 2 {
		if a, err = s.Operator().End(bounded(t), a.ID, "a mistake"); err != nil || a.Ended.IsZero() || a.Note != "a mistake" || a.Waiting != 0 || a.Matched != 2 || a.Results[observe.Held] != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	err = e.Tx(bounded(t), e.options(), func(tx TTx) error { return s.SettleReplay(bounded(t), tx, a.ID, taken.Letter.ID, observe.Processed) })
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
	second := request(t, s, ops.Request{Kind: ops.Unpark, Who: "bob", Reason: "the topic is there", Note: "topic gone", Expect: -1})
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
	a := request(t, s.Operator(), ops.Request{Kind: ops.Discard, Who: "ann", Reason: "test data", Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: -1})
	letter := e.letters(t, s)[0]
	if err := s.Operator().DiscardLetter(bounded(t), a.ID, letter); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator().DiscardLetter(bounded(t), a.ID, letter); err == nil {
		t.Error("it was discarded twice")
	}
	if a, err := s.Operator().End(bounded(t), a.ID, "done"); err != nil || a.Results[observe.Rejected] != 1 || len(e.letters(t, s)) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), messages(1)[0]); err != nil { // a late delivery
		t.Fatal(err)
	}
	e.wantEffects(t)
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
	if err := e.consumer(t, s, nil).Process(bounded(t), message("order-9", "orders")); err != nil { // with the default window
		t.Fatal(err)
	}
	before, err := s.Operator().Status(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	r := ops.Request{Kind: ops.Discard, Who: "ann", Reason: "test data", Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: 1}
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
	r := ops.Request{Kind: ops.Discard, Who: "ann", Reason: "test data", Filter: consumer.DeadLetterFilter{Consumer: name, Topic: "orders"}, Expect: 3}
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
	for _, tc := range []struct {
		id      string
		opts    ops.ExplainOptions
		verdict ops.Verdict
		letters int
		claimed bool
	}{
		{"order-1", ops.ExplainOptions{}, ops.Duplicate, 1, true},
		{"order-1", ops.ExplainOptions{Fingerprint: dedup.FingerprintOf([]byte("other content"))}, ops.Mismatch, 1, true},
		{"order-2", ops.ExplainOptions{}, ops.First, 1, false},
		{"order-3", ops.ExplainOptions{}, ops.First, 0, false},
		{"order-4", ops.ExplainOptions{}, ops.First, 0, false}, // the letter is a tenant's
	} {
		x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: tc.id}, tc.opts)
		if err != nil || x.Verdict != tc.verdict || len(x.Letters) != tc.letters || x.Claimed.IsZero() == tc.claimed || x.Claim.ExpiresAt.IsZero() == tc.claimed {
			t.Errorf("%s: %+v, %v; want %s and %d letters", tc.id, x, err, tc.verdict, tc.letters)
		}
	}
}

func testPlan[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), messages(1)[0]); err != nil { // processed meanwhile
		t.Fatal(err)
	}
	other := messages(1)[0]
	other.Payload = []byte("other content")
	for _, m := range []*consumer.Message{other, message("", "orders")} { // a mismatch, and one without key
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := ops.PlanReplay(bounded(t), s.Operator(), replayRequest())
	if err != nil || plan.Match != 5 || plan.Run != 2 || plan.Processed != 1 || plan.Refused[observe.CauseMismatch] != 1 || plan.Refused[observe.CauseNoKey] != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	if a.Results[observe.Processed] != 2 || a.Results[observe.Duplicate] != 1 || a.Results[observe.Parked] != 2 {
		t.Errorf("the replay did something else: %+v", a)
	}
}

// A letter whose key may have been forgotten since needs Request.AsNew.
func testPlanUnprovable[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	old := message("order-1", "orders")
	old.Time = time.Now().Add(-30 * 24 * time.Hour)
	e.park(t, s, old, message("order-2", "orders"))
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), message("order-3", "orders")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	e.Age(t, dedup.DefaultWindow+time.Hour)
	s = e.node(t)
	for done := false; !done; {
		swept, err := s.Store.(dedup.Purger).Purge(bounded(t), dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		done = swept.Done
	}
	for _, asNew := range []bool{false, true} {
		r := replayRequest()
		r.AsNew = asNew
		want := ops.ReplayPlan{Match: 2, Run: 2, Refused: map[observe.Cause]int{}}
		if !asNew {
			want = ops.ReplayPlan{Match: 2, Run: 1, Refused: map[observe.Cause]int{observe.CauseUnprovable: 1}}
		}
		plan, err := ops.PlanReplay(bounded(t), s.Operator(), r)
		if err != nil || !reflect.DeepEqual(plan, want) {
			t.Errorf("as new %v: %+v, %v; want %+v", asNew, plan, err, want)
		}
	}
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, e.consumer(t, s, nil))
	if a.Results[observe.Processed] != 1 || a.Results[observe.Parked] != 1 {
		t.Errorf("the replay did something else: %+v", a)
	}
}
