package decide_test

import (
	"testing"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func TestOfClaim(t *testing.T) {
	maybe, no := decide.Doubt{Any: true, Maybe: true}, decide.Doubt{Any: true}
	for _, tc := range []struct {
		name        string
		v           dedup.Verdict
		d           decide.Doubt
		alias       bool
		asDuplicate bool
		run         bool
		refused     observe.Cause
		settled     bool
	}{
		{name: "new", v: dedup.First, run: true},
		{name: "new, and an alias is known", v: dedup.First, alias: true, refused: observe.CauseKnownContent},
		{name: "new, after a doubt", v: dedup.First, d: no, run: true, settled: true},
		{name: "a duplicate", v: dedup.Duplicate, alias: true},
		{name: "a duplicate that proves nothing", v: dedup.Duplicate, d: maybe, refused: observe.CauseUnknown},
		{name: "a duplicate that another transaction has committed", v: dedup.Duplicate, d: no, settled: true},
		{name: "a mismatch", v: dedup.Mismatch, refused: observe.CauseMismatch},
		{name: "a mismatch that counts as a duplicate", v: dedup.Mismatch, asDuplicate: true},
		{name: "the same in doubt", v: dedup.Mismatch, asDuplicate: true, d: maybe, refused: observe.CauseUnknown},
		{name: "unprovable", v: dedup.Unprovable, refused: observe.CauseUnprovable},
		{name: "unprovable in doubt", v: dedup.Unprovable, d: maybe, refused: observe.CauseUnprovable},
	} {
		run, refused, settled := decide.OfClaim(tc.v, tc.d, tc.alias, tc.asDuplicate)
		if run != tc.run || refused != tc.refused || settled != tc.settled {
			t.Errorf("%s: run %v, refused %q, settled %v", tc.name, run, refused, settled)
		}
	}
}

func TestOfLetter(t *testing.T) {
	maybe, no, own := decide.Doubt{Any: true, Maybe: true}, decide.Doubt{Any: true},
		decide.Doubt{Any: true, OwnEffect: true}
	exhausted, unknown, mismatch := observe.CauseExhausted, observe.CauseUnknown, observe.CauseMismatch
	for _, tc := range []struct {
		name        string
		cause       observe.Cause
		claim       dedup.Verdict
		d           decide.Doubt
		asDuplicate bool
		want        decide.Letter
	}{
		{
			"it failed, and nothing was committed", exhausted, dedup.First,
			decide.Doubt{},
			false,
			decide.Letter{Cause: exhausted, Forget: true},
		},
		{
			"it failed, and an earlier COMMIT without an answer had happened", exhausted, dedup.Duplicate,
			decide.Doubt{},
			false,
			decide.Letter{Cause: exhausted, Result: decide.Committed},
		},
		{
			"it failed, and another message has the key", exhausted, dedup.Mismatch,
			decide.Doubt{},
			false,
			decide.Letter{Cause: mismatch},
		},
		{
			"the same, and that is a duplicate", exhausted, dedup.Mismatch,
			decide.Doubt{},
			true,
			decide.Letter{Cause: mismatch, Result: decide.Committed},
		},
		{
			"it failed, and its claim proves nothing", exhausted, dedup.Duplicate, maybe, false,
			decide.Letter{Cause: unknown},
		},
		{
			"it failed, and another transaction has committed it", exhausted, dedup.Duplicate, no, false,
			decide.Letter{Cause: exhausted, Result: decide.Committed},
		},
		{
			"a mismatch whose key is free now", mismatch, dedup.First,
			decide.Doubt{},
			false,
			decide.Letter{Cause: mismatch, Result: decide.Free, Forget: true},
		},
		{
			"in doubt, and its transaction was rolled back", unknown, dedup.First, maybe, false,
			decide.Letter{Cause: unknown, Result: decide.Free, Forget: true},
		},
		{
			"in doubt, and its own handler ended the transaction: the claim stays", unknown, dedup.First, own, false,
			decide.Letter{Cause: unknown},
		},
		{
			"in doubt, and a claim that proves nothing", unknown, dedup.Duplicate, maybe, false,
			decide.Letter{Cause: unknown},
		},
		{
			"in doubt, and another transaction has committed it", unknown, dedup.Duplicate, no, false,
			decide.Letter{Cause: unknown, Result: decide.Committed},
		},
		{
			"in doubt, and another message has the key", unknown, dedup.Mismatch, maybe, true,
			decide.Letter{Cause: unknown},
		},
	} {
		if got := decide.OfLetter(tc.cause, tc.claim, tc.d, tc.asDuplicate); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestAfterPark(t *testing.T) {
	park := func(cause observe.Cause) decide.Verdict { return decide.Verdict{Do: decide.Park, Cause: cause} }
	retry := decide.Verdict{Do: decide.Retry, Cause: observe.CauseHandler, Backoff: 2, Counted: true}
	last := decide.Verdict{Do: decide.Park, Cause: observe.CauseExhausted, Counted: true}
	past, now := decide.Past{Faults: 5}, decide.Now{Deferrals: 2}
	exhausted, unknown := park(observe.CauseExhausted), park(observe.CauseUnknown)
	for _, tc := range []struct {
		name    string
		r       decide.Parked
		v       decide.Verdict
		counted *decide.Verdict
		want    decide.Verdict
	}{
		{
			"its letter is written", decide.Written, exhausted, &last,
			decide.Verdict{Do: decide.Done, Cause: observe.CauseExhausted},
		},
		{"it was committed", decide.Committed, exhausted, &last, decide.Verdict{Do: decide.Done, Cause: observe.CauseExhausted}},
		{
			"no mismatch any more", decide.Free, park(observe.CauseMismatch), nil,
			decide.Verdict{Cause: observe.CauseMismatch, Backoff: 1},
		},
		{"not in doubt any more", decide.Free, unknown, nil, decide.Verdict{Cause: observe.CauseUnknown, Backoff: 1}},
		{"not in doubt any more, and its handler had failed", decide.Free, unknown, &retry, retry},
		{"the same at its last attempt", decide.Free, unknown, &last, last},
		{"the limit is spent", decide.Limited, exhausted, &last, decide.Verdict{Cause: observe.CauseBudget}},
		{"its key is held", decide.KeyHeld, exhausted, &last, decide.Verdict{Cause: observe.CauseInFlight, Backoff: 3}},
		{
			"the database refuses its letter", decide.Unstored, exhausted, &last,
			decide.Verdict{Cause: observe.CauseDatabase, Backoff: 6},
		},
		{"the database fails", decide.Failed, exhausted, &last, decide.Verdict{Do: decide.Pause, Cause: observe.CauseDatabase, Backoff: 5}},
		{
			"there is no place for letters", decide.NoLot, exhausted, &last,
			decide.Verdict{Do: decide.Done, Cause: observe.CauseExhausted},
		},
	} {
		if got := decide.AfterPark(tc.r, tc.v, tc.counted, past, now); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestBeforeHandlers(t *testing.T) {
	for cause, want := range map[observe.Cause]bool{
		observe.CauseMismatch: true, observe.CauseKnownContent: true, observe.CauseUnprovable: true,
		observe.CauseNoKey:       true,
		observe.CauseUndecodable: true, observe.CauseExhausted: false, observe.CausePanic: false,
		observe.CauseUnknown: false,
		observe.CauseCrashed: false,
	} {
		if got := decide.BeforeHandlers(cause, false); got != want {
			t.Errorf("%s: %v", cause, got)
		}
	}
	if decide.BeforeHandlers(observe.CausePermanent, false) || !decide.BeforeHandlers(observe.CausePermanent, true) {
		t.Error("a message with a wrong time is refused before its handler runs, and a handler's permanent error is not")
	}
}
