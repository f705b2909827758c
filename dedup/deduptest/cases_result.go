package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// resultCases are about the content of a row, and about forgetting it.
func resultCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "saved result replays byte for byte", run: savedResult[TTx]},
		{name: "a saved result rolls back with its claim", run: savedResultRollsBack[TTx]},
		{name: "forget allows a replay", run: forget[TTx]},
		{name: "forget rolls back with its transaction", run: forgetRollsBack[TTx]},
		{name: "look-up finds what is committed", run: lookup[TTx]},
	}
}

func savedResult[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	rs, ok := s.(driver.ResultStore[TTx])
	hook(t, "driver.ResultStore", !ok)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, result := range map[string][]byte{
		"bytes": every, "empty": {}, "nil": nil, "large": bytes.Repeat(every, 1000),
		"text": []byte(`{"a": 1.0}` + "\r\n"),
	} {
		save := func(result []byte) error {
			return s.InTx(ctx, []dedup.Record{record(name)}, func(tx TTx, _ []dedup.Claim) error {
				return rs.SaveResult(ctx, tx, record(name).Key, result)
			})
		}
		if err := save(result); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := e.must(t, s, record(name), dedup.Duplicate).Result
		if got == nil || !bytes.Equal(got, result) {
			t.Errorf("%s: saved %d bytes, replayed %d (nil: %v)", name, len(result), len(got), got == nil)
		}
	}
	e.must(t, s, record("none"), dedup.First)
	if c := e.must(t, s, record("none"), dedup.Duplicate); c.Result != nil {
		t.Errorf("a result that nobody saved: %q", c.Result)
	}
	if err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		return rs.SaveResult(ctx, tx, record("unclaimed").Key, every)
	}); err == nil {
		t.Error("a result was saved for a key without a claim")
	}
}

func savedResultRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	rs, ok := s.(driver.ResultStore[TTx])
	hook(t, "driver.ResultStore", !ok)
	attempt := func(end error) error {
		return s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
			return errors.Join(rs.SaveResult(ctx, tx, record("k").Key, []byte(fmt.Sprint(end))), end)
		})
	}
	if err := attempt(errUndo); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.First)
	if c := e.must(t, s, record("k"), dedup.Duplicate); c.Result != nil {
		t.Errorf("a result %q that was rolled back", c.Result)
	}
}

func forget[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, record("k"), dedup.First)
	e.must(t, s, record("l"), dedup.First)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		return s.Forget(ctx, tx, record("k").Key, record("never claimed").Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.First)
	e.must(t, s, record("l"), dedup.Duplicate)
	e.wantEffects(t, "k", "k", "l")

	// In the transaction of the claim, as parking does: that shows whether an earlier COMMIT happened, and leaves
	// nothing.
	err = s.InTx(ctx, []dedup.Record{record("m")}, func(tx TTx, _ []dedup.Claim) error {
		return s.Forget(ctx, tx, record("m").Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, s, record("m"), dedup.First)
}

func forgetRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, record("k"), dedup.First)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := s.Forget(ctx, tx, record("k").Key); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.Duplicate)
}

func lookup[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	look, ok := s.(driver.KeyReader)
	hook(t, "driver.KeyReader", !ok)
	r := record("k")
	if _, found, err := look.Lookup(ctx, r.Key); found || err != nil {
		t.Fatalf("before the claim: found %v, error %v", found, err)
	}
	e.must(t, s, r, dedup.First)
	c, found, err := look.Lookup(ctx, r.Key)
	if err != nil || !found || c.Fingerprint != r.Fingerprint || c.ExpiresAt.Before(time.Now()) {
		t.Fatalf("after the claim: %+v, found %v, error %v", c, found, err)
	}
}
