package deduptest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// commitCases are about a COMMIT whose answer never comes: claiming again settles what happened.
func commitCases[TTx any]() []testCase[TTx] {
	var cases []testCase[TTx]
	for _, f := range []Fault{CommitLost, AnswerLost, CommitLate} {
		cases = append(cases, testCase[TTx]{
			name:         fmt.Sprintf("commit outcome unknown: %v", f),
			perIsolation: true,
			run:          func(t *testing.T, e *env[TTx]) { commitUnknown(t, e, f) },
		})
	}
	return append(cases, testCase[TTx]{
		name: "commit outcome unknown: a claim that gives up waiting",
		run:  commitStillUnknown[TTx],
	})
}

func commitUnknown[TTx any](t *testing.T, e *env[TTx], f Fault) {
	hook(t, "Faulty", e.Faulty == nil)
	o := e.options()
	o.Wait = 10 * time.Second
	faulty, other, ctx := e.Faulty(t, o, f), e.node(t), bounded(t)
	e.must(t, other, record("warm"), dedup.First)

	r := record("k")
	var ran bool
	err := faulty.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
		ran = true
		return e.Effect(ctx, tx, r.Key.ID)
	})
	switch {
	case !ran:
		t.Fatalf("fn did not run: the fault struck too early: %v", err)
	case err == nil:
		t.Fatal("InTx returned nil for a COMMIT without an answer")
	case !faulty.Retryable(err):
		t.Errorf("%v: not retryable, so a consumer would blame the message", err)
	case errors.Is(err, dedup.ErrTxEnded):
		t.Errorf("%v: blames the handler for a lost connection", err)
	}

	// At once, while CommitLate is still on its way; by another node, as after a rebalance.
	want, effects := dedup.Duplicate, 1
	if f == CommitLost {
		want = dedup.First
	}
	c := e.must(t, other, r, want)
	if n := e.count(t, r.Key.ID); n != effects {
		t.Fatalf("claimed again: %v; %d effects, want %d", c.Verdict, n, effects)
	}
	e.must(t, faulty, r, dedup.Duplicate) // the node goes on over new connections
	if f == CommitLate {
		pause(ctx, LateBy)
	}
	e.settled(t, other, r)
}

func commitStillUnknown[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Faulty", e.Faulty == nil)
	o := e.options()
	o.Wait = LateBy / 5
	faulty, hasty, ctx := e.Faulty(t, o, CommitLate), e.Open(t, o), bounded(t)
	e.must(t, hasty, record("warm"), dedup.First)
	if _, err := e.handle(ctx, faulty, record("k")); err == nil {
		t.Fatal("InTx returned nil for a COMMIT without an answer")
	}
	if c, err := e.handle(ctx, hasty, record("k")); !passing(hasty, err) {
		t.Fatalf("claimed while the old COMMIT is under way, waiting %v: verdict %v, error %v; want ErrInFlight", o.Wait, c.Verdict, err)
	}
	e.must(t, hasty, record("k"), dedup.Duplicate)
	e.settled(t, hasty, record("k"))
}
