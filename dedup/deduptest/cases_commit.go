package deduptest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/observe"
)

// commitCases are about a COMMIT whose answer is lost: a new claim shows what happened.
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
	o.Wait = patience
	faulty, other, ctx := e.Faulty(t, o, f), e.node(t), bounded(t)
	e.must(t, other, record("warm"), dedup.First)

	r := record("k")
	err := e.suffer(t, faulty, r)
	switch {
	case !faulty.Retryable(err):
		t.Errorf("%v: not retryable, so a consumer would blame the message", err)
	case errors.Is(err, dedup.ErrTxEnded):
		t.Errorf("%v: blames the handler for a lost connection", err)
	}
	if c, ok := faulty.(driver.FaultClassifier); ok && c.Result(err) != observe.CommitUnknown {
		t.Errorf("%v: the result is %q, want %q", err, c.Result(err), observe.CommitUnknown)
	}

	// At once, while a late COMMIT is still on its way, and on another node, as after a rebalance.
	want, effects := dedup.Duplicate, 1
	if f == CommitLost {
		want = dedup.First
	}
	c := e.must(t, other, r, want)
	if n := e.count(t, r.Key.ID); n != effects {
		t.Fatalf("claimed again: %v; %d effects, want %d", c.Verdict, n, effects)
	}
	e.must(t, faulty, r, dedup.Duplicate) // the node goes on with new connections
	if f == CommitLate {
		_ = await.Sleep(ctx, LateBy)
	}
	e.settled(t, other, r)
}

// suffer handles r with a node whose COMMIT suffers a fault, and returns the error of InTx. An attempt that fails
// before fn has returned, as on a busy machine, sends no COMMIT, and is repeated.
func (e *env[TTx]) suffer(t *testing.T, faulty dedup.Store[TTx], r dedup.Record) error {
	t.Helper()
	ctx, done := bounded(t), false
	var early error
	for {
		err := faulty.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
			err := e.Effect(ctx, tx, r.Key.ID)
			done = err == nil
			return err
		})
		switch {
		case err == nil:
			t.Fatalf("InTx returned nil for a COMMIT without an answer; errors before fn had come to its end: %v", early)
		case done:
			return err
		case !passing(faulty, err) || ctx.Err() != nil:
			t.Fatalf("fn did not come to its end: the fault struck too early: %v", err)
		}
		early = err
		_ = await.Sleep(ctx, 5*time.Millisecond)
	}
}

func commitStillUnknown[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Faulty", e.Faulty == nil)
	o := e.options()
	o.Wait = LateBy / 5
	hasty := e.Open(t, o)
	e.must(t, hasty, record("warm"), dedup.First)
	for i := range 20 {
		if e.meetLateCommit(t, o, hasty, record(fmt.Sprint("k", i))) {
			return
		}
	}
	t.Errorf("no claim met a COMMIT that was under way for %v: this case tried nothing", LateBy)
}

// meetLateCommit claims r while an old COMMIT is on its way. It reports false if the claim came after the COMMIT, which
// happens on a busy machine.
func (e *env[TTx]) meetLateCommit(t *testing.T, o Options, hasty dedup.Store[TTx], r dedup.Record) (met bool) {
	t.Helper()
	patient := o
	patient.Wait = patience
	_ = e.suffer(t, e.Faulty(t, patient, CommitLate), r)
	c, err := e.handle(bounded(t), hasty, r)
	switch {
	case err == nil && c.Verdict == dedup.Duplicate: // too late
	case passing(hasty, err):
		met = true
	default:
		t.Fatalf("claimed while the old COMMIT is under way, waiting %v: verdict %v, error %v; want ErrInFlight",
			o.Wait, c.Verdict, err)
	}
	e.must(t, hasty, r, dedup.Duplicate)
	e.settled(t, hasty, r)
	return met
}
