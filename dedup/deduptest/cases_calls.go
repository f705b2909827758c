package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// callCases are about the record of calls to other systems.
func callCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a try is recorded before it begins", run: recordedTry[TTx]},
		{name: "one process begins a try", run: oneTry[TTx]},
		{name: "a settled call begins no try", perIsolation: true, run: settledCall[TTx]},
		{name: "a try that had no effect is taken back", run: takenBack[TTx]},
		{name: "an answer about a call is kept", run: answeredCall[TTx]},
		{name: "an answer about a call that has changed is refused", run: staleAnswer[TTx]},
		{name: "the record of a call goes with its claim", perIsolation: true, run: droppedCall[TTx]},
	}
}

func keeper[TTx any](t *testing.T, s dedup.Store[TTx]) driver.CallKeeper[TTx] {
	t.Helper()
	c, ok := s.(driver.CallStore[TTx])
	hook(t, "driver.CallStore", !ok)
	return c.Calls()
}

func call[TTx any](t *testing.T, k driver.CallKeeper[TTx], key dedup.Key) driver.Call {
	t.Helper()
	c, err := k.Call(bounded(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func try(token int64, within time.Duration) driver.Try {
	return driver.Try{Token: token, Within: within, Fingerprint: record("").Fingerprint}
}

func begin[TTx any](t *testing.T, k driver.CallKeeper[TTx], key dedup.Key, seen driver.Call, tr driver.Try,
	want bool,
) driver.Call {
	t.Helper()
	began, err := k.BeginTry(bounded(t), key, seen, tr)
	if err != nil || began != want {
		t.Fatalf("BeginTry = %v, %v, want %v", began, err, want)
	}
	return call(t, k, key)
}

func recordedTry[TTx any](t *testing.T, e *env[TTx]) {
	s, key := e.node(t), record("k").Key
	k, other := keeper(t, s), keeper(t, e.node(t))
	none := call(t, k, key)
	if none.Token != 0 || none.Settled || none.Unanswered != 0 || time.Since(none.Now).Abs() > time.Hour || none.Server == "" {
		t.Fatalf("before the first try: %+v", none)
	}
	first := begin(t, k, key, none, try(7, time.Minute), true)
	if got := call(t, other, key); got.Token != 7 || got.Server != none.Server || got.Unanswered != 1 || got.Fingerprint != record("").Fingerprint ||
		got.Last.Sub(got.First).Abs() > time.Second || got.Until.Sub(got.Last).Round(time.Second) != time.Minute ||
		got.First.Before(none.Now.Truncate(time.Microsecond)) || got.Verdict != driver.CallUnknown || got.Result != nil {
		t.Fatalf("another node sees of the first try: %+v", got)
	}
	second := begin(t, other, key, first, try(8, time.Second), true)
	if second.Unanswered != 2 || !second.First.Equal(first.First) || !second.Last.After(first.Last) ||
		!second.Until.Equal(first.Until) {
		t.Fatalf("the second try, which ends before the first: %+v, after %+v", second, first)
	}
	third := try(9, time.Hour)
	third.Only = true
	if got := begin(t, k, key, second, third, true); got.Unanswered != 1 || !got.First.After(second.First) ||
		got.Until.Before(second.Until) {
		t.Fatalf("the third try, after earlier ones had no effect: %+v", got)
	}
	if got := call(t, k, record("l").Key); got.Token != 0 {
		t.Fatalf("another call: %+v", got)
	}
}

func oneTry[TTx any](t *testing.T, e *env[TTx]) {
	node, ctx := e.node(t), bounded(t)
	nodes := []driver.CallKeeper[TTx]{keeper(t, node), keeper(t, e.node(t))}
	key := record("k").Key
	for round := range int64(5) {
		seen, began := call(t, nodes[0], key), atomic.Int64{}
		var racing sync.WaitGroup
		for i := range int64(4) {
			racing.Go(func() {
				s := nodes[i%2]
				ok := false
				err := retry(ctx, node, func() (err error) {
					ok, err = s.BeginTry(ctx, key, seen, try(1+10*round+i, time.Minute))
					return err
				})
				switch {
				case err != nil:
					t.Error(err)
				case ok:
					began.Add(1)
				}
			})
		}
		racing.Wait()
		if began.Load() != 1 {
			t.Fatalf("round %d: %d processes began the try that they all saw", round, began.Load())
		}
	}
	if got := call(t, nodes[1], key); got.Unanswered != 5 {
		t.Fatalf("after five tries: %+v", got)
	}
}

func settledCall[TTx any](t *testing.T, e *env[TTx]) {
	s, r := e.node(t), record("k")
	k, ctx := keeper(t, s), bounded(t)
	none := call(t, k, r.Key)
	first := begin(t, k, r.Key, none, try(1, time.Minute), true)
	// The transaction that settles the call is open when another process begins a try that saw the first one, or none.
	began := make(chan bool, 1)
	var stale sync.WaitGroup
	err := retry(ctx, s, func() error {
		return s.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
			if _, err := k.DropCall(ctx, tx, r.Key, 0); err != nil {
				return err
			}
			if len(began) == 0 && !e.OneWriter {
				stale.Go(func() {
					ok, err := k.BeginTry(ctx, r.Key, none, try(2, time.Minute))
					if err != nil {
						t.Errorf("BeginTry beside the transaction that settles: %v", err)
					}
					began <- ok
				})
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	stale.Wait()
	if len(began) > 0 && <-began {
		t.Error("a try began beside the transaction that settles the call")
	}
	begin(t, k, r.Key, none, try(3, time.Minute), false)
	if got := begin(t, k, r.Key, first, try(4, time.Minute), false); got.Token != 0 || !got.Settled ||
		got.Claimed != r.Fingerprint {
		t.Errorf("after it was settled: %+v", got)
	}
}

func takenBack[TTx any](t *testing.T, e *env[TTx]) {
	k, key, ctx := keeper(t, e.node(t)), record("k").Key, bounded(t)
	none := call(t, k, key)
	begin(t, k, key, none, try(1, time.Minute), true)
	if err := k.TakeBackTry(ctx, key, 2, none); err != nil {
		t.Fatal(err)
	}
	if got := call(t, k, key); got.Token != 1 {
		t.Fatalf("the try of another process was taken back: %+v", got)
	}
	if err := k.TakeBackTry(ctx, key, 1, none); err != nil {
		t.Fatal(err)
	}
	again := call(t, k, key)
	if again.Token != 0 {
		t.Fatalf("the only try was taken back: %+v", again)
	}
	first := begin(t, k, key, again, try(3, time.Minute), true)
	begin(t, k, key, first, try(4, time.Hour), true)
	if err := k.TakeBackTry(ctx, key, 4, first); err != nil {
		t.Fatal(err)
	}
	if got := call(t, k, key); got.Unanswered != 1 || !got.First.Equal(first.First) || !got.Last.Equal(first.Last) ||
		!got.Until.Equal(first.Until) || got.Token == 0 {
		t.Fatalf("the second try was taken back: %+v, want what was there before: %+v", got, first)
	}
}

func answer[TTx any](t *testing.T, k driver.CallKeeper[TTx], key dedup.Key, seen int64, happened bool, result []byte,
	want bool,
) {
	t.Helper()
	a := driver.Answer{Happened: happened, Result: result, Fingerprint: record("").Fingerprint}
	if recorded, err := k.AnswerCall(bounded(t), key, seen, a); err != nil || recorded != want {
		t.Fatalf("AnswerCall = %v, %v, want %v", recorded, err, want)
	}
}

// A person answers what was there before the question, and not what another person or a relay has written since.
func staleAnswer[TTx any](t *testing.T, e *env[TTx]) {
	k, key := keeper(t, e.node(t)), record("k").Key
	answer(t, k, key, 5, false, nil, false)
	if got := call(t, k, key); got.Token != 0 {
		t.Fatalf("an answer about a record that is gone: %+v", got)
	}
	answer(t, k, key, 0, true, []byte("result"), true)
	first := call(t, k, key)
	for _, seen := range []int64{0, first.Token + 1} {
		answer(t, k, key, seen, false, nil, false)
	}
	if got := call(t, k, key); got.Token != first.Token || got.Verdict != driver.CallHappened || string(got.Result) != "result" {
		t.Fatalf("after stale answers: %+v", got)
	}
	answer(t, k, key, first.Token, false, nil, true)
	answer(t, k, key, first.Token, true, nil, false)
	if got := call(t, k, key); got.Verdict != driver.CallAbsent {
		t.Fatalf("after the answer of somebody who knew the record: %+v", got)
	}
}

func answeredCall[TTx any](t *testing.T, e *env[TTx]) {
	k, ctx := keeper(t, e.node(t)), bounded(t)
	tried, untried := record("tried").Key, record("untried").Key
	seen := begin(t, k, tried, driver.Call{}, try(1, time.Minute), true)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, key := range []dedup.Key{tried, untried} {
		for _, result := range [][]byte{every, {}, nil} {
			answer(t, k, key, driver.AnyToken, true, result, true)
			if got := call(t, k, key); got.Verdict != driver.CallHappened || !bytes.Equal(got.Result, result) ||
				got.Token == 0 || got.Fingerprint != record("").Fingerprint {
				t.Fatalf("%v happened: %+v", key, got)
			}
		}
		answer(t, k, key, driver.AnyToken, false, nil, true)
		if got := call(t, k, key); got.Verdict != driver.CallAbsent || len(got.Result) > 0 {
			t.Fatalf("%v has not happened: %+v", key, got)
		}
	}
	begin(t, k, tried, seen, try(2, time.Minute), false) // it was decided before the answer
	absent := call(t, k, tried)
	again := try(3, time.Minute)
	again.Only = true
	if got := begin(t, k, tried, absent, again, true); got.Verdict != driver.CallUnknown || got.Unanswered != 1 {
		t.Fatalf("the next try: %+v", got)
	}
	if err := k.TakeBackTry(ctx, tried, 3, absent); err != nil {
		t.Fatal(err)
	}
	if got := call(t, k, tried); got.Verdict != driver.CallAbsent {
		t.Fatalf("the next try was taken back: %+v", got)
	}
}

func droppedCall[TTx any](t *testing.T, e *env[TTx]) {
	s, r := e.node(t), record("k")
	k, ctx := keeper(t, s), bounded(t)
	begin(t, k, r.Key, driver.Call{}, try(1, time.Minute), true)
	token := int64(1)
	drop := func(end error) error {
		return retry(ctx, s, func() error {
			return s.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
				for _, d := range []struct {
					key   dedup.Key
					token int64
					want  bool
				}{{r.Key, 2, false}, {r.Key, token, true}, {r.Key, token, false}, {record("none").Key, 0, false}} {
					if dropped, err := k.DropCall(ctx, tx, d.key, d.token); err != nil || dropped != d.want {
						return fmt.Errorf("DropCall(%v, %d) = %v, %w, want %v", d.key, d.token, dropped, err, d.want)
					}
				}
				return end
			})
		})
	}
	if err := drop(errUndo); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	if got := call(t, k, r.Key); got.Token != 1 || got.Settled {
		t.Fatalf("after a rollback: %+v", got)
	}
	token = 0
	if err := drop(nil); err != nil {
		t.Fatal(err)
	}
	if got := call(t, k, r.Key); got.Token != 0 || !got.Settled {
		t.Fatalf("after the commit: %+v", got)
	}
	for _, happened := range []bool{true, false} { // as after a COMMIT whose answer was lost
		answer(t, k, r.Key, driver.AnyToken, happened, nil, false)
		answer(t, k, r.Key, 0, happened, nil, false)
		if got := call(t, k, r.Key); got.Token != 0 || !got.Settled {
			t.Fatalf("an answer after the commit: %+v", got)
		}
	}
}
