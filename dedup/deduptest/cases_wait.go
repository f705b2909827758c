package deduptest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// waitCases are about a claim whose key another transaction holds.
func waitCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a concurrent claim waits, then sees a duplicate", perIsolation: true, run: waitsForCommit[TTx]},
		{name: "the holder rolls back, the waiter runs", perIsolation: true, run: waitsForRollback[TTx]},
		{name: "bounded wait gives ErrInFlight and frees the connection", perIsolation: true, run: boundedWait[TTx]},
		{name: "bounded wait in the caller's own transaction", perIsolation: true, run: boundedOwnTx[TTx]},
		{name: "a batch of held keys waits no longer than one key", perIsolation: true, run: boundedBatch[TTx]},
		{name: "a claim waits for Forget, then is first", perIsolation: true, run: waitsForForget[TTx]},
		{name: "a shorter wait is the claim's alone", perIsolation: true, run: shorterWait[TTx]},
		{name: "held keys are told apart in one go", run: heldKeys[TTx]},
	}
}

// hold claims r and keeps the transaction open until release is called. release makes fn return its argument, and
// returns the error of InTx.
func (e *env[TTx]) hold(t *testing.T, s dedup.Store[TTx], r dedup.Record) (release func(error) error) {
	t.Helper()
	ctx := bounded(t)
	holding, end, done := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		done <- s.InTx(ctx, []dedup.Record{r}, func(tx TTx, claims []dedup.Claim) error {
			if v := claims[0].Verdict; v != dedup.First {
				return fmt.Errorf("the holder's claim is %v", v)
			}
			if err := e.Effect(ctx, tx, r.Key.ID); err != nil {
				return err
			}
			close(holding)
			return <-end
		})
	}()
	select {
	case <-holding:
	case err := <-done:
		t.Fatalf("holding %v: %v", r.Key, err)
	}
	var once sync.Once
	var result error
	release = func(with error) error {
		once.Do(func() {
			end <- with
			result = <-done
		})
		return result
	}
	t.Cleanup(func() { _ = release(errUndo) })
	return release
}

func waitsForCommit[TTx any](t *testing.T, e *env[TTx]) {
	e.meet(t, nil, dedup.Duplicate)
	e.wantEffects(t, "k")
}

func waitsForRollback[TTx any](t *testing.T, e *env[TTx]) {
	e.meet(t, errUndo, dedup.First)
	e.wantEffects(t, "k")
}

// meet makes a claim wait for a holder whose fn then returns end.
func (e *env[TTx]) meet(t *testing.T, end error, want dedup.Verdict) {
	t.Helper()
	holder, waiter := e.node(t), e.node(t)
	release := e.hold(t, holder, record("k"))
	answer := make(chan error, 1)
	ctx := bounded(t)
	var c dedup.Claim
	go func() {
		answer <- retry(ctx, waiter, func() (err error) {
			c, err = e.handle(ctx, waiter, record("k"))
			return err
		})
	}()
	select {
	case err := <-answer:
		t.Fatalf("the claim did not wait: verdict %v, error %v", c.Verdict, err)
	case <-time.After(150 * time.Millisecond):
	}
	if err := release(end); !errors.Is(err, end) {
		t.Fatalf("holder: %v", err)
	}
	if err := <-answer; err != nil || c.Verdict != want {
		t.Fatalf("waiter: verdict %v, error %v; want %v", c.Verdict, err, want)
	}
}

// slow reports whether all waits, which should have lasted wait, were too long. A busy machine makes some of them long,
// but not all.
func slow(fastest, wait time.Duration, start time.Time) bool {
	return fastest > 10*wait && time.Since(start) < limit/4
}

func boundedWait[TTx any](t *testing.T, e *env[TTx]) {
	o := e.options()
	o.Wait = 200 * time.Millisecond
	holder, s, ctx := e.node(t), e.Open(t, o), bounded(t)
	e.must(t, s, record("warm"), dedup.First) // opens a connection and registers the consumer
	release := e.hold(t, holder, record("k"))

	fastest, start := limit, time.Now()
	for i := 0; i < 3 || slow(fastest, o.Wait, start); i++ {
		began := time.Now()
		_, err := e.handle(ctx, s, record("k"))
		took := time.Since(began)
		fastest = min(fastest, took)
		switch {
		case e.OneWriter && s.Retryable(err): // the whole database is busy
		case s.Retryable(err) && time.Since(start) < limit/4: // the database was too busy to answer
			i--
			continue
		case !errors.Is(err, dedup.ErrInFlight):
			t.Fatalf("claim of a held key: %v, want ErrInFlight", err)
		case s.Retryable(err):
			t.Error("ErrInFlight is retryable: a consumer must be able to tell a busy key from a faulty database")
		}
		if took < o.Wait/2 {
			t.Errorf("the claim waited %v, want about %v", took, o.Wait)
		}
		if e.Connections != nil {
			n := e.Connections(t, s)
			for ; n != 0 && ctx.Err() == nil; n = e.Connections(t, s) {
				// a pool closes a broken connection in the background
				_ = await.Sleep(ctx, time.Millisecond)
			}
			if n != 0 {
				t.Errorf("%d connections are in use after ErrInFlight", n)
			}
		}
		if !e.OneWriter { // the connection can be used for the next message
			e.must(t, s, record(fmt.Sprint("free ", i)), dedup.First)
		}
	}
	if fastest > 10*o.Wait {
		t.Errorf("the claims waited %v and more, want about %v", fastest, o.Wait)
	}
	if err := release(nil); err != nil {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.Duplicate)
}

func boundedOwnTx[TTx any](t *testing.T, e *env[TTx]) {
	o := e.options()
	o.Wait = 200 * time.Millisecond
	holder, s, ctx := e.node(t), e.Open(t, o), bounded(t)
	e.must(t, s, record("warm"), dedup.First)
	release := e.hold(t, holder, record("k"))
	for _, recs := range [][]dedup.Record{{record("k")}, {record("k"), record("l")}} {
		fastest, start := limit, time.Now()
		for i := 0; i < 1 || slow(fastest, o.Wait, start); i++ {
			began := time.Now()
			var claimed error
			err := e.Tx(ctx, e.options(), func(tx TTx) error {
				_, claimed = s.Claim(ctx, tx, recs)
				return claimed
			})
			fastest = min(fastest, time.Since(began))
			if !e.OneWriter && s.Retryable(err) && time.Since(start) < limit/4 {
				i--
				continue
			}
			if err == nil || !passing(s, err) || !e.OneWriter && !errors.Is(claimed, dedup.ErrInFlight) {
				t.Errorf("claim of a held key (%d records): %v, want ErrInFlight", len(recs), err)
			}
		}
		if fastest > 10*o.Wait {
			t.Errorf("the claims waited %v and more, want about %v", fastest, o.Wait)
		}
	}
	if err := release(errUndo); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.First)
}

func boundedBatch[TTx any](t *testing.T, e *env[TTx]) {
	o := e.options()
	o.Wait = 200 * time.Millisecond
	holder, s := e.node(t), e.Open(t, o)
	e.must(t, s, record("warm"), dedup.First)
	for round := range 10 {
		if e.batchOfHeld(t, holder, s, o.Wait, round) || e.OneWriter {
			return
		}
	}
	t.Errorf("batches of held keys went on each time, with waits bounded to %v", o.Wait)
}

// batchOfHeld claims keys that are released one after the other, so that each wait alone is short enough. It reports
// whether the batch gave up. On a busy machine the claim may be so late that few keys are still held.
func (e *env[TTx]) batchOfHeld(t *testing.T, holder, s dedup.Store[TTx], wait time.Duration, round int) (gaveUp bool) {
	t.Helper()
	ctx := bounded(t)
	var recs []dedup.Record
	for i := range 8 { // one lock each
		recs = append(recs, record(fmt.Sprintf("held %d/%d", round, i)))
	}
	slices.SortFunc(recs, func(a, b dedup.Record) int { return a.Key.Hash().Compare(b.Key.Hash()) })
	var releases []func(error) error
	for _, r := range recs {
		if e.OneWriter && len(releases) > 0 {
			break
		}
		releases = append(releases, e.hold(t, holder, r))
	}
	answer := make(chan error, 1)
	go func() { answer <- s.InTx(ctx, recs, func(TTx, []dedup.Claim) error { return nil }) }()
	for _, release := range releases {
		select {
		case err := <-answer:
			answer <- err
		case <-time.After(3 * wait / 4):
		}
		if err := release(errUndo); !errors.Is(err, errUndo) {
			t.Error(err)
		}
	}
	err := <-answer
	if err == nil {
		return false
	}
	if !passing(s, err) {
		t.Errorf("batch: %v, want ErrInFlight", err)
	}
	for _, v := range verdicts(t, s, recs) {
		if v != dedup.First {
			t.Errorf("after the holders rolled back: %v, want first", v)
		}
	}
	return true
}

func waitsForForget[TTx any](t *testing.T, e *env[TTx]) {
	holder, waiter, ctx := e.node(t), e.node(t), bounded(t)
	e.must(t, holder, record("k"), dedup.First)
	e.must(t, waiter, record("warm"), dedup.First)
	answer := make(chan error, 1)
	var c dedup.Claim
	err := holder.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := holder.Forget(ctx, tx, record("k").Key); err != nil {
			return err
		}
		go func() {
			answer <- retry(ctx, waiter, func() (err error) {
				c, err = e.handle(ctx, waiter, record("k"))
				return err
			})
		}()
		_ = await.Sleep(ctx, 100*time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	// Both answers are right, because the row is there until Forget commits. Neither loses the key.
	switch v := c.Verdict; v {
	case dedup.First:
		e.wantEffects(t, "k", "k", "warm")
		e.must(t, waiter, record("k"), dedup.Duplicate)
	case dedup.Duplicate:
		e.must(t, waiter, record("k"), dedup.First)
	default:
		t.Errorf("verdict %v", v)
	}
}
