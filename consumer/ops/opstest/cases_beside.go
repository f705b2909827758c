package opstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// besideCases are about what happens beside a handler that processes a letter.
func besideCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a letter that is being settled keeps no worker waiting", testSettlingKeepsNobody[TTx]},
		{"the end of a request waits for no handler", testEndWaitsForNobody[TTx]},
		{"a letter that stays in flight fails for that", testReplayInFlight[TTx]},
		{"a handler that ends its transaction loses no letter", testReplayMisuse[TTx]},
	}
}

// soon is how long something may take that waits for nobody.
const soon = 10 * time.Second

func testSettlingKeepsNobody[TTx any](t *testing.T, e *env[TTx]) {
	if e.oneWriter {
		return // a transaction that writes keeps all others waiting
	}
	one, two := e.node(t), e.node(t)
	e.park(t, one, messages(2)...)
	a := request(t, one.Operator(), replayRequest())
	first, found, _, err := take(bounded(t), one, name, 0) // the lease is over at once
	if !found || err != nil {
		t.Fatal(found, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := e.Tx(bounded(t), e.options(), func(tx TTx) error {
		if err := one.SettleReplay(bounded(t), tx, a.ID, first.Letter, observe.Processed); err != nil {
			return err
		}
		second, found, _, err := take(ctx, two, name, time.Hour)
		if !found || err != nil || second.Letter.ID == first.Letter.ID {
			t.Errorf("the other worker takes %v, %v, %v; want the second letter", second.Letter.ID, found, err)
		}
		if _, found, wait, err := take(ctx, two, name, time.Hour); found || err != nil || wait < 100*time.Millisecond {
			t.Errorf("once more: %v, %v, %v; want to wait for a while", found, wait, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func testEndWaitsForNobody[TTx any](t *testing.T, e *env[TTx]) {
	if e.oneWriter {
		return // as above
	}
	s := e.node(t)
	e.park(t, s, messages(2)...)
	entered, leave := make(chan struct{}), make(chan struct{})
	c := e.consumer(t, s, func(*consumer.Message) error { close(entered); <-leave; return nil })
	a := request(t, s.Operator(), replayRequest())
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	done := make(chan error)
	go func() { done <- c.RunReplays(ctx) }()
	<-entered
	within, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	a, err := e.node(t).Operator().End(within, a.ID, "a mistake")
	if err != nil || a.Ended.IsZero() || a.Waiting != 0 {
		t.Errorf("ended %+v, %v", a, err)
	}
	close(leave)
	ended := e.consumer(t, e.node(t), nil) // its replay waits for the handler, whose key it claims
	for _, l := range e.letters(t, s) {
		if _, err := ended.Replay(bounded(t), l, consumer.Replay{}); err != nil {
			t.Errorf("%s cannot be replayed after the end: %v", l.Record.Key.ID, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.wantEffects(t, "order-000", "order-001")
	if a = waitForEnd(t, s.Operator(), a.ID); a.Results[observe.Held] != 2 || a.Results[observe.Processed] != 0 {
		t.Errorf("afterwards %+v", a)
	}
}

func testReplayInFlight[TTx any](t *testing.T, e *env[TTx]) {
	if e.oneWriter {
		return // no key is ever held: a claim waits for any transaction that writes
	}
	s := e.node(t)
	e.park(t, s, messages(1)...)
	hasty := e.open(t, deduptest.Options{Wait: 250 * time.Millisecond})
	c := e.consumer(t, hasty, nil)
	a := request(t, s.Operator(), replayRequest())
	if err := s.InTx(bounded(t), []dedup.Record{record("order-000")}, func(TTx, []dedup.Claim) error {
		// as a frozen process does
		a = replay(t, s.Operator(), a.ID, c)
		return errBroken
	}); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	results, err := s.Operator().Results(bounded(t), ops.ResultFilter{Action: a.ID})
	if err != nil || len(results) != 1 || results[0].Outcome != observe.Parked ||
		results[0].Cause != observe.CauseInFlight {
		t.Errorf("%+v, %v; want a failure because the key is in flight", results, err)
	}
}

func testReplayMisuse[TTx any](t *testing.T, e *env[TTx]) {
	if len(e.Misuse) == 0 {
		t.Fatal("the harness lists no misuse")
	}
	for _, misuse := range e.Misuse {
		s := e.node(t)
		id := "misuse " + misuse.Name
		e.park(t, s, message(id, "orders"))
		cfg := e.config(s, nil)
		cfg.Handle = func(ctx context.Context, tx TTx, msg *consumer.Message) error {
			_ = misuse.Do(ctx, tx)
			return e.Effect(ctx, tx, msg.ID)
		}
		c, err := consumer.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		a := replay(t, s.Operator(), request(t, s.Operator(), replayRequest()).ID, c)
		c.Close()
		effects := 0
		for _, got := range e.Effects(t) {
			if got == id {
				effects++
			}
		}
		left := e.letters(t, s)
		switch processed := a.Results[observe.Processed] == 1; {
		case effects > 1:
			t.Errorf("%s: %d effects", misuse.Name, effects)
		case len(left) == 0 && effects == 0:
			t.Errorf("%s: the letter is gone, and there is no effect: %+v", misuse.Name, a)
		case len(left) > 0 && left[0].Settled && effects == 0:
			t.Errorf("%s: the letter counts as settled, and there is no effect", misuse.Name)
		case processed && (len(left) > 0 || effects == 0):
			t.Errorf("%s: %d letters and %d effects, and the request says %v", misuse.Name, len(left), effects,
				a.Results)
		}
		for _, l := range left {
			action := request(t, s.Operator(), ops.Request{
				Kind: ops.Discard, Who: "suite", Reason: "the next case",
				Filter: consumer.DeadLetterFilter{Consumer: name}, Expect: -1,
			})
			if err := s.Operator().DiscardLetter(bounded(t), action.ID, l); err != nil {
				t.Fatalf("%s: %v", misuse.Name, err)
			}
		}
	}
}
