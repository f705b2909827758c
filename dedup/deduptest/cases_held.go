package deduptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// shorterWait claims held keys under driver.WithClaimWait: one and several, in InTx and in the caller's transaction.
func shorterWait[TTx any](t *testing.T, e *env[TTx]) {
	const short = 20 * time.Millisecond
	holder, s := e.node(t), e.node(t) // s waits for half of the suite's limit by default
	e.must(t, s, record("warm"), dedup.First)
	e.hold(t, holder, record("held"))
	ctx := driver.WithClaimWait(bounded(t), short)
	for n := range 3 {
		recs := []dedup.Record{record("held")}
		for i := range n {
			recs = append(recs, record(fmt.Sprint("free ", i)))
		}
		for name, claim := range map[string]func(fn func(TTx) error) error{
			"InTx": func(fn func(TTx) error) error {
				return s.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error { return fn(tx) })
			},
			"Claim": func(fn func(TTx) error) error {
				return e.Tx(ctx, e.options(), func(tx TTx) error {
					if _, err := s.Claim(ctx, tx, recs); err != nil {
						return err
					}
					return fn(tx)
				})
			},
		} {
			began := time.Now()
			err := claim(func(TTx) error { t.Error("a held key was claimed"); return errUndo })
			if took := time.Since(began); took >= patience {
				t.Errorf("%s of %d keys under a wait of %v took %v", name, len(recs), short, took)
			}
			if !errors.Is(err, dedup.ErrInFlight) || s.Retryable(err) {
				t.Errorf("%s of %d keys: %v, want ErrInFlight", name, len(recs), err)
			}
		}
	}
	if e.LockWait == nil { // another case demands the hook
		return
	}
	var want, got string
	if err := e.Tx(ctx, e.options(), func(tx TTx) (err error) { want, err = e.LockWait(ctx, tx); return err }); err != nil {
		t.Fatal(err)
	}
	for _, recs := range [][]dedup.Record{{record("one")}, {record("two"), record("three")}} {
		err := s.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) (err error) { got, err = e.LockWait(ctx, tx); return err })
		if err != nil || got != want {
			t.Errorf("lock wait after a claim of %d keys that waits shorter: %q, want the session's %q (error %v)",
				len(recs), got, want, err)
		}
	}
}

func heldKeys[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	prober, ok := s.(driver.KeyProber)
	if !ok {
		t.Fatal("the store is no driver.KeyProber")
	}
	const n = 200
	keys, want := make([]dedup.Key, n), make([]bool, n)
	for i := range keys {
		keys[i] = record(fmt.Sprint("k", i)).Key
		if i%40 == 3 {
			e.must(t, s, record(keys[i].ID), dedup.First) // claimed, but not held
		}
		if i%40 != 7 {
			continue
		}
		if want[i] = !e.OneWriter; want[i] {
			e.hold(t, e.node(t), record(keys[i].ID))
		}
	}
	before := len(e.Effects(t))
	for range 3 { // it must not leave a lock that the next call would find
		held, err := prober.HeldKeys(ctx, keys)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(held, want) {
			t.Fatalf("held: %v, want %v", positions(held), positions(want))
		}
	}
	if held, err := prober.HeldKeys(ctx, nil); err != nil || len(held) != 0 {
		t.Errorf("of no keys: %v, %v", held, err)
	}
	for i := range keys {
		if i%40 != 3 && !want[i] && i%10 == 0 {
			e.must(t, s, record(keys[i].ID), dedup.First)
			before++
		}
	}
	if after := len(e.Effects(t)); after != before {
		t.Errorf("%d effects, want %d", after, before)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := prober.HeldKeys(ended, keys); err == nil && !e.OneWriter {
		t.Error("no error though ctx has ended")
	}
}

func positions(all []bool) (at []int) {
	for i, is := range all {
		if is {
			at = append(at, i)
		}
	}
	return at
}
