package opstest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func repairCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a letter is repaired", testRepair[TTx]},
		{"a repair that fails leaves the letter as it is", testRepairFails[TTx]},
		{"a repair under another key", testRepairKey[TTx]},
		{"a repair is for one letter", testRepairOne[TTx]},
		{"a shortened letter needs a repair", testRepairShortened[TTx]},
	}
}

const fixed = `{"name": "<fixed>"}`

// fixedOnly is a handler that takes only the repaired payload.
func fixedOnly(m *consumer.Message) error {
	if string(m.Payload) != fixed {
		return consumer.Permanent(fmt.Errorf("the payload is %q", m.Payload))
	}
	return nil
}

func repairRequest(letter consumer.DeadLetter) ops.Request {
	r := replayRequest()
	r.Kind, r.Filter.ID, r.Payload = ops.Repair, letter.ID, []byte(fixed)
	return r
}

func testRepair[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	letter := e.letters(t, s)[1] // the older one
	a := request(t, s.Operator(), repairRequest(letter))
	if a.Matched != 1 || a.Note != "" || strings.Contains(a.Filter, "fixed") ||
		!strings.Contains(a.Filter, `"payload_bytes":19`) || a.Kind != ops.Repair {
		t.Errorf("requested %+v", a)
	}
	taken, found, _, err := take(bounded(t), s, name, time.Millisecond) // and the process is killed
	if !found || err != nil || string(taken.Payload) != fixed ||
		string(taken.Letter.Message.Payload) != "payload of order-000" {
		t.Errorf("taken %+v, %v, %v", taken, found, err)
	}
	c := e.consumer(t, s, fixedOnly)
	a = replay(t, s.Operator(), a.ID, c)
	if a.Results[observe.Processed] != 1 || a.Waiting != 0 || a.Note != "done" || strings.Contains(a.Filter, "fixed") ||
		!strings.Contains(a.Filter, "payload_sha256") {
		t.Errorf("ended %+v", a)
	}
	if left := e.letters(t, s); len(left) != 1 || left[0].Record.Key.ID != "order-001" {
		t.Errorf("left %+v", left)
	}
	if err := c.Process(bounded(t), messages(1)[0]); err != nil { // the original is delivered again
		t.Fatal(err)
	}
	if left := e.letters(t, s); len(left) != 1 {
		t.Errorf("a late delivery of the original is no duplicate: %+v", left)
	}
	e.wantEffects(t, "order-000")
}

func testRepairFails[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	c := e.consumer(t, s, fixedOnly)
	r := repairRequest(e.letters(t, s)[0])
	r.Payload = []byte{} // an empty payload is another one, too
	a := replay(t, s.Operator(), request(t, s.Operator(), r).ID, c)
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID})
	if a.Results[observe.Parked] != 1 || err != nil || !strings.Contains(results[0].Error, `the payload is ""`) {
		t.Errorf("ended %+v, %+v, %v", a, results, err)
	}
	if left := e.letters(t, s); len(left) != 1 || string(left[0].Message.Payload) != "payload of order-000" {
		t.Errorf("left %+v", left)
	}
	a = replay(t, s.Operator(), request(t, s.Operator(), repairRequest(e.letters(t, s)[0])).ID, c)
	if a.Results[observe.Processed] != 1 {
		t.Errorf("ended %+v", a)
	}
	e.wantEffects(t, "order-000")
}

// A mismatch has other content under a key that is in use. Both its own key and the new one stay claimed, each for its
// content.
func testRepairKey[TTx any](t *testing.T, e *env[TTx]) {
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
	r := repairRequest(e.letters(t, s)[0])
	a := replay(t, s.Operator(), request(t, s.Operator(), r).ID, c)
	if a.Results[observe.Parked] != 1 {
		t.Errorf("a mismatch was repaired under its own key: %+v", a)
	}
	r.Key = "order-1b"
	a = replay(t, s.Operator(), request(t, s.Operator(), r).ID, c)
	if a.Results[observe.Processed] != 1 {
		t.Errorf("ended %+v", a)
	}
	for id, content := range map[string]string{"order-1": "payload of order-1", "order-1b": fixed} {
		claim, found, err := s.Lookup(bounded(t), dedup.Key{Consumer: name, ID: id})
		if err != nil || !found || claim.Fingerprint != dedup.FingerprintOf([]byte(content)) {
			t.Errorf("%s: %+v, %v, %v; want the fingerprint of %q", id, claim, found, err, content)
		}
	}
	if n := len(e.letters(t, s)); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

func testRepairOne[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	r := repairRequest(consumer.DeadLetter{})
	if _, err := s.Operator().Request(bounded(t), r); err == nil {
		t.Error("a repair of all letters is accepted")
	}
	r = repairRequest(e.letters(t, s)[0])
	r.Payload = make([]byte, ops.MaxRepair+1)
	if _, err := s.Operator().Request(bounded(t), r); err == nil {
		t.Error("a payload that is too long is accepted")
	}
	r.Payload = []byte(strings.Repeat("\xff", ops.MaxRepair))
	a := request(t, s.Operator(), r)
	taken, found, _, err := take(bounded(t), s, name, time.Hour)
	if !found || err != nil || string(taken.Payload) != string(r.Payload) {
		t.Errorf("%d bytes arrive, %v, %v", len(taken.Payload), found, err)
	}
	if _, err := s.Operator().Request(bounded(t), r); err == nil {
		t.Error("a letter that waits for another request was chosen")
	}
	if _, err := s.Operator().End(bounded(t), a.ID, "a mistake"); err != nil {
		t.Fatal(err)
	}
	request(t, s.Operator(), r)
}

// A letter that has only a part of its message is not replayed without the whole payload, and the plan says so.
func testRepairShortened[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	letter := e.letters(t, s)[1]
	letter.Message.Payload = letter.Message.Payload[:7]
	letter.Message.Headers = map[string]string{"txonce-shortened": `{"fields":["payload"],"payload_bytes":20,"payload_sha256":"ab","refused":"too large"}`}
	if err := e.Tx(bounded(t), e.options(), func(tx TTx) error { return s.Park(bounded(t), tx, letter) }); err != nil {
		t.Fatal(err)
	}
	c := e.consumer(t, s, func(*consumer.Message) error { return nil })
	p, err := ops.PlanReplay(bounded(t), s.Operator(), replayRequest(), 0)
	if err != nil || p.Run != 1 || p.Refused[observe.CauseUndecodable] != 1 {
		t.Errorf("planned %+v, %v", p, err)
	}
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID, Outcome: observe.Parked})
	if a.Results[observe.Processed] != 1 || a.Results[observe.Parked] != 1 || err != nil || len(results) != 1 ||
		!strings.Contains(results[0].Error, consumer.ErrShortened.Error()) {
		t.Errorf("ended %+v, %+v, %v", a, results, err)
	}
	left := e.letters(t, s)
	if len(left) != 1 || left[0].ID != letter.ID {
		t.Fatalf("left %+v", left)
	}
	if short, ok := left[0].Shortened(); !ok || short.PayloadBytes != 20 {
		t.Errorf("shortened %v, %+v", ok, short)
	}
	if a = replay(t, s.Operator(), request(t, s.Operator(), repairRequest(left[0])).ID,
		c); a.Results[observe.Processed] != 1 || len(e.letters(t, s)) != 0 {
		t.Errorf("the repair ended %+v", a)
	}
}
