package opstest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

func replayCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"workers replay each letter once", testReplayOnce[TTx]},
		{"a failure returns to parked", testReplayFails[TTx]},
		{"a letter that was processed meanwhile", testReplayProcessed[TTx]},
		{"a letter that was discarded meanwhile", testReplayDiscarded[TTx]},
		{"a worker that ends leaves its letter to others", testReplayKilled[TTx]},
		{"a taken letter is nobody else's", testReplayTaken[TTx]},
		{"the rate is that of all workers", testReplayRate[TTx]},
		{"a rate lets one letter go after an idle time", testRateAfterIdle[TTx]},
		{"letters that are late do not delay the next ones", testRateOfLateLetters[TTx]},
		{"too many failures end the request", testReplayMaxFailures[TTx]},
		{"a settlement happens once", testSettleOnce[TTx]},
	}
}

func testReplayOnce[TTx any](t *testing.T, e *env[TTx]) {
	one, two := e.node(t), e.node(t)
	msgs := messages(20)
	e.park(t, one, msgs...)
	var mu sync.Mutex
	runs := map[string]int{}
	count := func(m *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		runs[m.ID]++
		return nil
	}
	a := request(t, one.Operator(), replayRequest())
	if a.Matched != 20 || a.Waiting != 20 || a.Who != "ann" || a.Reason != "INC-17 is over" || a.Consumer != name ||
		a.Kind != ops.Replay {
		t.Errorf("requested %+v", a)
	}
	a = replay(t, one.Operator(), a.ID, e.consumer(t, one, count), e.consumer(t, two, count))
	if a.Results[observe.Processed] != 20 || a.Waiting != 0 {
		t.Errorf("ended %+v", a)
	}
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		if ids[i] = m.ID; runs[m.ID] != 1 {
			t.Errorf("%s ran %d times", m.ID, runs[m.ID])
		}
	}
	e.wantEffects(t, ids...)
	if n := len(e.letters(t, one)); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	results, err := one.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID})
	if err != nil || len(results) != 20 {
		t.Errorf("%d results, %v", len(results), err)
	}
}

func testReplayFails[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	broken := true
	c := e.consumer(t, s, func(m *consumer.Message) error {
		if broken && m.ID == "order-001" {
			return errBroken
		}
		return nil
	})
	a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	if a.Results[observe.Processed] != 2 || a.Results[observe.Parked] != 1 {
		t.Errorf("ended %+v", a)
	}
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID, Outcome: observe.Parked})
	if err != nil || len(results) != 1 || results[0].Cause != observe.CauseHandler || results[0].Error == "" {
		t.Errorf("results %+v, %v", results, err)
	}
	left := e.letters(t, s)
	if len(left) != 1 || left[0].ID != results[0].Letter {
		t.Fatalf("letters %+v", left)
	}
	broken = false
	replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
	e.wantEffects(t, "order-000", "order-001", "order-002")
}

func testReplayProcessed[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	a := request(t, s.Operator(), replayRequest())
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), messages(1)[0]); err != nil { // the source delivers it again
		t.Fatal(err)
	}
	a = replay(t, s.Operator(), a.ID, c)
	if a.Results[observe.Duplicate] != 1 {
		t.Errorf("ended %+v", a)
	}
	e.wantEffects(t, "order-000")
	if n := len(e.letters(t, s)); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

func testReplayDiscarded[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	a := request(t, s.Operator(), replayRequest())
	c := e.consumer(t, s, nil)
	if err := c.Discard(bounded(t), e.letters(t, s)[0]); err != nil {
		t.Fatal(err)
	}
	a = replay(t, s.Operator(), a.ID, c)
	if a.Results[observe.Processed] != 1 || a.Results[observe.Duplicate] != 1 {
		t.Errorf("ended %+v", a)
	}
	e.wantEffects(t, "order-000")
}

func testReplayKilled[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	a := request(t, s.Operator(), replayRequest())
	if _, found, _, err := take(bounded(t), s, name, 50*time.Millisecond); !found || err != nil {
		// and the process is killed
		t.Fatal(found, err)
	}
	ctx, kill := context.WithCancel(bounded(t))
	dying := e.consumer(t, e.node(t), func(*consumer.Message) error { kill(); return nil })
	if err := dying.RunReplays(ctx); err != nil {
		t.Error(err)
	}
	a = replay(t, s.Operator(), a.ID, e.consumer(t, s, nil))
	if a.Results[observe.Processed] != 3 {
		t.Errorf("ended %+v", a)
	}
	e.wantEffects(t, "order-000", "order-001", "order-002")
	if n := len(e.letters(t, s)); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

func testReplayTaken[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	request(t, s.Operator(), replayRequest())
	first, found, _, err := take(bounded(t), s, name, time.Hour)
	if !found || err != nil || first.Letter.Record.Key.ID != "order-000" || first.Tries != 1 {
		t.Fatalf("%+v, %v, %v", first, found, err)
	}
	second, found, _, err := take(bounded(t), s, name, time.Hour)
	if !found || err != nil || second.Letter.Record.Key.ID != "order-001" {
		t.Fatalf("%+v, %v, %v", second, found, err)
	}
	if _, found, wait, err := take(bounded(t), s, name, time.Hour); found || err != nil || wait < time.Minute {
		t.Errorf("found %v, wait %v, %v; want to wait for the end of a lease", found, wait, err)
	}
	if _, found, wait, err := take(bounded(t), s, "other", time.Hour); found || err != nil || wait != 0 {
		t.Errorf("another consumer: found %v, wait %v, %v", found, wait, err)
	}
	if err := s.ReturnReplay(bounded(t), first.Action, first.Letter.ID, "", "", 0); err != nil {
		t.Fatal(err)
	}
	again, found, _, err := take(bounded(t), s, name, time.Hour)
	if !found || err != nil || again.Letter.ID != first.Letter.ID || again.Tries != 2 {
		t.Errorf("%+v, %v, %v; want the first again", again, found, err)
	}
}

func testReplayRate[TTx any](t *testing.T, e *env[TTx]) {
	one, two := e.node(t), e.node(t)
	e.park(t, one, messages(6)...)
	r := replayRequest()
	r.Rate = 10
	began := time.Now()
	a := replay(t, one.Operator(), request(t, one.Operator(), r).ID, e.consumer(t, one, nil), e.consumer(t, two, nil))
	if took := time.Since(began); took < 500*time.Millisecond || a.Results[observe.Processed] != 6 {
		t.Errorf("6 letters at 10/s took %v: %+v", took, a)
	}
}

// Two days without a worker are no reason to take all letters at once.
func testRateAfterIdle[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(3)...)
	r := replayRequest()
	r.Rate = .001 // a letter in 1000 s
	request(t, s.Operator(), r)
	e.Age(t, 48*time.Hour)
	lose(t, s)
	if _, found, wait, err := take(bounded(t), s, name, time.Hour); found || err != nil || wait < 800*time.Second ||
		wait > 1000*time.Second {
		t.Errorf("the second letter: found %v, wait %v, %v; want a wait of 1000 s", found, wait, err)
	}
}

// A worker takes a letter some milliseconds after its turn began. The next turn begins as if it had not been late.
func testRateOfLateLetters[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(2)...)
	r := replayRequest()
	r.Rate = 10.5 // a letter in 95 ms
	request(t, s.Operator(), r)
	e.Age(t, time.Hour)
	lose(t, s)
	if _, found, wait, err := take(bounded(t), s, name, time.Hour); !found || err != nil {
		t.Errorf("the second letter: found %v, wait %v, %v; want it at once, because the first one was late", found,
			wait, err)
	}
}

func testReplayMaxFailures[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(5)...)
	r := replayRequest()
	r.MaxFailures = 2
	a := replay(t, s.Operator(), request(t, s.Operator(), r).ID,
		e.consumer(t, s, func(*consumer.Message) error { return errBroken }))
	if a.Results[observe.Parked] != 2 || a.Waiting != 0 || a.Note == "" || a.Matched != 5 ||
		a.Results[observe.Held] != 3 {
		t.Errorf("ended %+v", a)
	}
	if n := len(e.letters(t, s)); n != 5 {
		t.Errorf("%d letters, want all 5", n)
	}
}

// Whatever the workers do, a letter is settled once for a request.
func testSettleOnce[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	e.park(t, s, messages(1)...)
	a := request(t, s.Operator(), replayRequest())
	letter := e.letters(t, s)[0]
	for i, want := range []error{nil, consumer.ErrNotParked} {
		err := e.Tx(bounded(t), e.options(), func(tx TTx) error {
			if err := s.SettleReplay(bounded(t), tx, a.ID, letter, observe.Processed); err != nil {
				return err
			}
			return s.Park(bounded(t), tx, letter) // it is parked again
		})
		if !errors.Is(err, want) {
			t.Errorf("settlement %d: %v, want %v", i+1, err, want)
		}
	}
}
