package opstest

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func planCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a replay is planned", testPlan[TTx]},
		{"a plan knows what is unprovable by now", testPlanUnprovable[TTx]},
		{"a plan looks at the claims of today", testPlanClaims[TTx]},
		{"a plan with a limit is about the oldest letters", testPlanLimit[TTx]},
		{"a plan leaves out letters that wait for another request", testPlanElsewhere[TTx]},
		{"a plan of a letter under another key", testPlanKey[TTx]},
		{"a letter whose alias is known needs a person", testPlanAliases[TTx]},
	}
}

func plan(t *testing.T, s ops.Store, r ops.Request) ops.ReplayPlan {
	t.Helper()
	p, err := ops.PlanReplay(bounded(t), s, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantReplay makes a request and fails unless its end is what p has said.
func wantReplay[TTx any](t *testing.T, s ops.Store, r ops.Request, p ops.ReplayPlan, c *consumer.Consumer[TTx]) {
	t.Helper()
	refused := 0
	for n := range maps.Values(p.Refused) {
		refused += n
	}
	a := replay(t, s, request(t, s, r).ID, c)
	if a.Matched != p.Match || a.Results[observe.Processed] != p.Run || a.Results[observe.Duplicate] != p.Processed ||
		a.Results[observe.Parked] != refused {
		t.Errorf("the replay did something else: %+v; the plan was %+v", a, p)
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
	p := plan(t, s.Operator(), replayRequest())
	if p.Match != 5 || p.Run != 2 || p.Processed != 1 || p.Refused[observe.CauseMismatch] != 1 ||
		p.Refused[observe.CauseNoKey] != 1 {
		t.Errorf("%+v", p)
	}
	wantReplay(t, s.Operator(), replayRequest(), p, c)
}

// Why a letter was parked does not tell what a replay meets today.
func testPlanClaims[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	old := message("old", "orders")
	old.Time = time.Now().Add(-dedup.DefaultWindow - 2*time.Hour)
	doubt := message("doubt", "orders")
	e.park(t, s, old, message("reused", "orders"), message("runs", "orders"))
	c := e.consumer(t, s, nil)
	other := message("reused", "orders")
	other.Payload = []byte("other content")
	if err := c.Process(bounded(t), message("forgotten", "orders")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	letter := consumer.DeadLetter{
		ID: consumer.DeadLetterID{1}, Record: record("doubt"), Message: *doubt, Cause: observe.CauseUnknown,
		Error: "the handler ended its transaction",
	}
	if err := e.Tx(bounded(t), e.options(), func(tx TTx) error { return s.Park(bounded(t), tx, letter) }); err != nil {
		t.Fatal(err)
	}
	e.forget(t)
	s = e.node(t)
	c = e.consumer(t, s, nil)
	if err := c.Process(bounded(t), other); err != nil { // the producer uses the key again
		t.Fatal(err)
	}
	p := plan(t, s.Operator(), replayRequest())
	if p.Match != 4 || p.Run != 1 || p.Refused[observe.CauseMismatch] != 1 || p.Refused[observe.CauseUnprovable] != 1 ||
		p.Refused[observe.CauseUnknown] != 1 {
		t.Errorf("%+v", p)
	}
	wantReplay(t, s.Operator(), replayRequest(), p, c)
	r := replayRequest()
	r.AsNew = true
	p = plan(t, s.Operator(), r)
	if p.Match != 3 || p.Run != 2 || p.Refused[observe.CauseMismatch] != 1 {
		t.Errorf("as new: %+v", p)
	}
	wantReplay(t, s.Operator(), r, p, c)
}

// forget makes all keys expire, and deletes them. There must be one.
func (e *env[TTx]) forget(t *testing.T) {
	t.Helper()
	e.Age(t, dedup.DefaultWindow+time.Hour)
	s := e.node(t)
	purger := s.Store.(dedup.Purger)
	for keys := 0; keys == 0; {
		swept, err := purger.Purge(bounded(t), dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 100})
		if err != nil || swept.Done && swept.Keys == 0 {
			t.Fatalf("%+v, %v: no key was forgotten", swept, err)
		}
		keys = swept.Keys
	}
}

func testPlanLimit[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(120)...)
	c := e.consumer(t, s, nil)
	for _, m := range messages(2) { // the oldest two
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	r := replayRequest()
	r.Filter.Limit = 5
	p := plan(t, s.Operator(), r)
	if p.Match != 5 || p.Processed != 2 || p.Run != 3 {
		t.Errorf("%+v", p)
	}
	wantReplay(t, s.Operator(), r, p, c)
	for most, want := range map[int]bool{114: true, 115: false, 116: false} {
		p, err := ops.PlanReplay(bounded(t), s.Operator(), replayRequest(), most)
		if err != nil || p.More != want || p.Match != min(most, 115) {
			t.Errorf("at most %d: %+v, %v", most, p, err)
		}
	}
	n, err := ops.CountLetters(bounded(t), s.Operator(), consumer.DeadLetterFilter{Consumer: name})
	if n != 115 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
}

func testPlanElsewhere[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	r := replayRequest()
	r.Filter.Limit = 2
	request(t, s.Operator(), r)
	if p := plan(t, s.Operator(), replayRequest()); p.Match != 1 || p.Run != 1 || p.Elsewhere != 2 {
		t.Errorf("%+v", p)
	}
	r = replayRequest()
	r.Expect = 1
	request(t, s.Operator(), r)
}

func testPlanKey[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, nil)
	taken := message("taken", "orders")
	for _, m := range []*consumer.Message{message("order-1", "orders"), taken} {
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	for i, payload := range []string{"payload of taken", "other content"} { // mismatches
		m := message("order-1", "orders")
		m.Payload, m.Position = []byte(payload), fmt.Sprint("orders/0/", i)
		if err := c.Process(bounded(t), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range e.letters(t, s) {
		r := replayRequest()
		r.Filter.ID, r.Key = l.ID, "taken"
		p := plan(t, s.Operator(), r)
		same := string(l.Message.Payload) == "payload of taken"
		if p.Match != 1 || p.Processed == 1 != same || p.Refused[observe.CauseMismatch] == 1 == same {
			t.Errorf("%s under a key that is taken: %+v", l.Message.Payload, p)
		}
		wantReplay(t, s.Operator(), r, p, c)
	}
	r := replayRequest()
	left := e.letters(t, s)
	if len(left) != 1 {
		t.Fatalf("%d letters are left, want one", len(left))
	}
	r.Filter.ID, r.Key = left[0].ID, "order-1b"
	p := plan(t, s.Operator(), r)
	if p.Run != 1 {
		t.Errorf("under a free key: %+v", p)
	}
	wantReplay(t, s.Operator(), r, p, c)
}

// aliased is message with aliases.
func aliased(id string, aliases ...string) *consumer.Message {
	m := message(id, "orders")
	m.Aliases = aliases
	return m
}

// A letter keeps the aliases of its message. An alias that another message has claimed meanwhile makes it known
// content, and those that are free are claimed by the replay.
func testPlanAliases[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	const unusual = "é,\n\x01\"'\\"
	e.park(t, s, aliased("order-1", "free", "known"), aliased("order-2", "other", unusual))
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), aliased("order-3", "known")); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]ops.Verdict{
		"order-1": ops.KnownContent, "order-2": ops.First,
		"known": ops.Duplicate,
	} {
		x, err := ops.Explain(bounded(t), s.Operator(), dedup.Key{Consumer: name, ID: id}, ops.ExplainOptions{})
		if err != nil || x.Verdict != want {
			t.Errorf("%s is explained as %s, %v; want %s", id, x.Verdict, err, want)
		}
	}
	p := plan(t, s.Operator(), replayRequest())
	if p.Match != 2 || p.Run != 1 || p.Refused[observe.CauseKnownContent] != 1 {
		t.Errorf("%+v", p)
	}
	wantReplay(t, s.Operator(), replayRequest(), p, c)
	e.wantEffects(t, "order-2", "order-3")
	if err := c.Process(bounded(t), aliased("order-4", unusual)); err != nil {
		t.Fatal(err)
	}
	r := replayRequest()
	r.Filter.MessageID, r.AsNew = "order-1", true
	p = plan(t, s.Operator(), r)
	if p.Match != 1 || p.Run != 1 {
		t.Errorf("as new: %+v", p)
	}
	wantReplay(t, s.Operator(), r, p, c)
	if err := c.Process(bounded(t), aliased("order-5", "free")); err != nil {
		t.Fatal(err)
	}
	e.wantEffects(t, "order-1", "order-2", "order-3")
	if left := e.letters(t, s); len(left) != 2 || left[0].Cause != observe.CauseKnownContent ||
		left[1].Cause != observe.CauseKnownContent {
		t.Errorf("left %+v, want order-4 and order-5 as known content", left)
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
		swept, err := s.Store.(dedup.Purger).Purge(bounded(t),
			dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 100})
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
		plan, err := ops.PlanReplay(bounded(t), s.Operator(), r, 0)
		plan.Newest = time.Time{}
		if err != nil || !reflect.DeepEqual(plan, want) {
			t.Errorf("as new %v: %+v, %v; want %+v", asNew, plan, err, want)
		}
	}
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, e.consumer(t, s, nil))
	if a.Results[observe.Processed] != 1 || a.Results[observe.Parked] != 1 {
		t.Errorf("the replay did something else: %+v", a)
	}
}
