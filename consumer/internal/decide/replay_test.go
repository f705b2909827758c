package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func TestReplayOf(t *testing.T) {
	first, duplicate, mismatch, unprovable := dedup.First, dedup.Duplicate, dedup.Mismatch, dedup.Unprovable
	run, processed := decide.Outcome{Run: true}, decide.Outcome{}
	refused := func(c observe.Cause) decide.Outcome { return decide.Outcome{Refused: c} }
	own := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "1"}}
	letter := func(cause observe.Cause) decide.Replay {
		return decide.Replay{Own: own, Cause: cause, SamePayload: true}
	}
	with := func(r decide.Replay, change func(r *decide.Replay)) decide.Replay { change(&r); return r }
	asNew := func(r *decide.Replay) { r.AsNew = true }
	otherKey := func(r *decide.Replay) { r.Key = "2" }
	sameKey := func(r *decide.Replay) { r.Key = "1" }
	exhausted, unknown := letter(observe.CauseExhausted), letter(observe.CauseUnknown)
	short := with(exhausted, func(r *decide.Replay) { r.Lacks = []string{"payload"} })
	headless := with(exhausted, func(r *decide.Replay) { r.Lacks, r.Repaired = []string{"headers"}, true })
	for _, tc := range []struct {
		name     string
		r        decide.Replay
		verdicts []dedup.Verdict
		taken    bool
		want     decide.Outcome
	}{
		{"it failed", exhausted, []dedup.Verdict{first}, false, run},
		{"it was processed since", exhausted, []dedup.Verdict{duplicate}, true, processed},
		{
			"it was processed since under its own key", with(exhausted, otherKey),
			[]dedup.Verdict{first, duplicate},
			false, processed,
		},
		{
			"its key was used for other content", exhausted,
			[]dedup.Verdict{mismatch},
			false,
			refused(observe.CauseMismatch),
		},
		{"the same as new", with(exhausted, asNew), []dedup.Verdict{mismatch}, false, refused(observe.CauseMismatch)},
		{"its claim may be forgotten", exhausted, []dedup.Verdict{unprovable}, false, refused(observe.CauseUnprovable)},
		{"an alias is known", exhausted, []dedup.Verdict{first}, true, refused(observe.CauseKnownContent)},
		{"an alias is known, as new", with(exhausted, asNew), []dedup.Verdict{first}, true, run},
		{"a mismatch", letter(observe.CauseMismatch), []dedup.Verdict{first}, false, refused(observe.CauseMismatch)},
		{
			"a mismatch under its own key", with(letter(observe.CauseMismatch), sameKey),
			[]dedup.Verdict{first},
			false,
			refused(observe.CauseMismatch),
		},
		{
			"a mismatch under another key", with(letter(observe.CauseMismatch), otherKey),
			[]dedup.Verdict{first, mismatch},
			false, run,
		},
		{
			"unprovable", letter(observe.CauseUnprovable),
			[]dedup.Verdict{first},
			false,
			refused(observe.CauseUnprovable),
		},
		{"unprovable as new", with(letter(observe.CauseUnprovable), asNew), []dedup.Verdict{first}, false, run},
		{
			"known content", letter(observe.CauseKnownContent),
			[]dedup.Verdict{first},
			false,
			refused(observe.CauseKnownContent),
		},
		{"known content as new", with(letter(observe.CauseKnownContent), asNew), []dedup.Verdict{first}, false, run},
		{"in doubt", unknown, []dedup.Verdict{duplicate}, false, refused(observe.CauseUnknown)},
		{"in doubt, as new: its claim proves nothing", with(unknown, asNew), []dedup.Verdict{duplicate}, false, run},
		{
			"in doubt, as new, under another key", with(with(unknown, asNew), otherKey),
			[]dedup.Verdict{first, duplicate},
			false,
			run,
		},
		{
			"in doubt, and processed since under another key", with(with(unknown, asNew), otherKey),
			[]dedup.Verdict{duplicate, duplicate},
			false, processed,
		},
		{
			"in doubt, and its key has other content", with(unknown, asNew),
			[]dedup.Verdict{mismatch},
			false,
			refused(observe.CauseMismatch),
		},
		{"shortened", short, []dedup.Verdict{first}, false, refused(observe.CauseUndecodable)},
		{"shortened, as new", with(short, asNew), []dedup.Verdict{first}, false, refused(observe.CauseUndecodable)},
		{
			"shortened, with a repair that changes nothing", with(short, func(r *decide.Replay) { r.Repaired = true }),
			[]dedup.Verdict{first},
			false, refused(observe.CauseUndecodable),
		},
		{
			"shortened, and repaired", with(short, func(r *decide.Replay) { r.Repaired, r.SamePayload = true, false }),
			[]dedup.Verdict{first},
			false, run,
		},
		{"without its headers, and repaired", headless, []dedup.Verdict{first}, false, run},
	} {
		if got := tc.r.Of(tc.verdicts, tc.taken); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestReplayClaims(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	content := dedup.FingerprintOf([]byte("a"))
	rec := func(id string, at time.Time) dedup.Record {
		return dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: at, Fingerprint: content}
	}
	none := time.Time{}
	for _, tc := range []struct {
		name string
		r    decide.Replay
		rec  dedup.Record
		want []dedup.Record
		anew bool // a new fingerprint
	}{
		{"its own key", decide.Replay{Own: rec("1", at)}, rec("1", at), []dedup.Record{rec("1", at)}, false},
		{"as new", decide.Replay{Own: rec("1", at), AsNew: true}, rec("1", at), []dedup.Record{rec("1", none)}, false},
		{
			"another key, unchanged",
			decide.Replay{Own: rec("1", at), SamePayload: true},
			rec("2", at),
			[]dedup.Record{rec("2", at), rec("1", none)},
			false,
		},
		{
			"another key, repaired",
			decide.Replay{Own: rec("1", at)},
			rec("2", at),
			[]dedup.Record{rec("2", at), rec("1", none)},
			true,
		},
		{"no key", decide.Replay{Own: rec("", at)}, rec("2", at), []dedup.Record{rec("2", at)}, true},
		{
			"no key, so no fingerprint either",
			decide.Replay{Own: dedup.Record{Key: rec("", at).Key}, SamePayload: true},
			rec("2", at),
			[]dedup.Record{rec("2", at)},
			true,
		},
	} {
		if got := tc.r.Claims(tc.rec); !slices.Equal(got, tc.want) || tc.r.NewContent(tc.rec.Key) != tc.anew {
			t.Errorf("%s: %+v, want %+v; new content: %v", tc.name, got, tc.want, tc.r.NewContent(tc.rec.Key))
		}
	}
}
