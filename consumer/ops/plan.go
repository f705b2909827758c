package ops

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// ReplayPlan is what a request would do now.
type ReplayPlan struct {
	Match int // letters that the request would choose
	Run   int // whose handlers would run
	// of Run: letters with observe.CauseUndecodable that are not repaired. They fail again unless the decoder was
	// mended
	Undecoded int
	Processed int // that were processed meanwhile: their letters would be removed
	// that would fail, because they need Request.AsNew, for a mismatch another Request.Key, or if shortened a repair;
	// by cause
	Refused map[observe.Cause]int

	// letters that the filter chooses, and that wait for another open request: this one would leave them out. Not in
	// Match
	Elsewhere int
	More      bool // there are more letters than PlanReplay's limit

	// Searched is where the search stopped because of its limit, when it is not zero: letters that were parked before
	// this time were not searched and may match, too. Then More is true.
	Searched time.Time

	// Newest is when the latest of Match and Elsewhere was parked for the first time; zero: there are none. A request
	// whose Filter.Until is a microsecond later chooses no letter that arrives after the plan.
	Newest time.Time
}

// PlanReplay finds out what r would do, and changes nothing. It compares the letters with the committed claims of their
// keys, page by page. most limits the letters: it reads at most that many that match, and searches five times as many.
// 0: no limit. r.Expect is not compared.
//
// The answer may be outdated at once: it does not see transactions that are in progress, and it does not foresee
// whether handlers fail. Of two letters with a common alias it counts both as new, although the second will be known
// content. It knows nothing of the consumer's Config. So it counts a letter without a key as refused unless it is
// repaired, although Config.Key may find a key now; a letter without a time as new, although Config.ParkUntimed may say
// that it is not; and it takes the hash of a repaired payload for its fingerprint, although Config.Fingerprint may give
// another one.
func PlanReplay(ctx context.Context, s Store, r Request, most int) (plan ReplayPlan, err error) {
	plan.Refused = map[observe.Cause]int{}
	letters, err := plan.choose(ctx, s, r, most)
	if err != nil {
		return plan, err
	}
	consumers, err := s.Keys().Consumers(ctx)
	if err != nil {
		return plan, err
	}
	horizons := map[string]time.Time{}
	for _, c := range consumers {
		horizons[c.Name] = c.Horizon
	}
	plan.Match = len(letters)
	for page := range slices.Chunk(letters, pageSize) {
		hows, recs, aliases := make([]decide.Replay, len(page)), make([][]dedup.Record, len(page)),
			make([][]dedup.Record, len(page))
		var keys []dedup.Key
		for i, l := range page {
			if hows[i], recs[i] = replayed(l, r); len(recs[i]) > 0 {
				aliases[i] = l.AliasRecords(recs[i][0])
			}
			for _, rec := range slices.Concat(recs[i], aliases[i]) {
				keys = append(keys, rec.Key)
			}
		}
		claimed, err := s.Keys().Claimed(ctx, keys)
		if err != nil {
			return plan, err
		}
		for i, l := range page {
			var verdicts []dedup.Verdict
			for _, rec := range recs[i] {
				verdicts = append(verdicts, verdict(rec, claimed, horizons[rec.Key.Consumer]))
			}
			suspected := slices.ContainsFunc(aliases[i],
				func(alias dedup.Record) bool { _, found := claimed[alias.Key]; return found })
			switch o := foresee(hows[i], verdicts, suspected); {
			case o.Refused != "":
				plan.Refused[o.Refused]++
			case !o.Run:
				plan.Processed++
			default:
				plan.Run++
				if l.Cause == observe.CauseUndecodable && r.Kind != Repair {
					plan.Undecoded++
				}
			}
		}
	}
	return plan, nil
}

// searched is how many letters PlanReplay reads for one that it may choose.
const searched = 5

// choose returns the letters that r would choose, without their content.
func (p *ReplayPlan) choose(ctx context.Context, s Store, r Request,
	most int,
) (letters []consumer.DeadLetter, err error) {
	filter := r.Filter
	filter.Limit = 0 // which chooses the oldest, and letters are listed newest first
	if most > 0 {
		filter.Limit = most + 1
		since, err := s.Keys().Reach(ctx, filter, searched*most)
		if err != nil {
			return nil, err
		}
		if since.After(filter.Since) {
			filter.Since, p.Searched, p.More = since, since, true
		}
	}
	if err = eachLetter(ctx, s, filter, func(l consumer.DeadLetter) bool {
		if most > 0 && len(letters) == most {
			p.More = true
			return false
		}
		if l.First.After(p.Newest) {
			p.Newest = l.First
		}
		if l.Record.Key.ID == "" {
			l.Record.Fingerprint = dedup.FingerprintOf(l.Message.Payload)
		}
		if r.Kind != Repair { // which is for one letter, and compares its payload
			l = l.WithoutContent()
		}
		letters = append(letters, l)
		return true
	}); err != nil {
		return nil, err
	}
	found, ids := len(letters), make([]consumer.DeadLetterID, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	elsewhere, err := s.Keys().Waiting(ctx, ids)
	if err != nil {
		return nil, err
	}
	letters = slices.DeleteFunc(letters, func(l consumer.DeadLetter) bool { return elsewhere[l.ID] })
	p.Elsewhere = found - len(letters)
	if n := len(letters) - r.Filter.Limit; r.Filter.Limit > 0 && n > 0 {
		letters = letters[n:]
	}
	return letters, err
}

// replayed returns what decides about a replay of l, and what it would claim, as far as that is known without the
// consumer: see consumer.Consumer.Replay. Without a key it would claim nothing.
func replayed(l consumer.DeadLetter, r Request) (how decide.Replay, recs []dedup.Record) {
	how = decide.Replay{
		Own: l.Record, Cause: l.Cause, Key: r.Key, AsNew: r.AsNew,
		Repaired: r.Kind == Repair, SamePayload: r.Kind != Repair || bytes.Equal(r.Payload, l.Message.Payload),
	}
	if s, short := l.Shortened(); short {
		how.Lacks = s.Fields
	}
	rec := l.Record
	if rec.Key.ID = cmp.Or(r.Key, rec.Key.ID); rec.Key.ID == "" {
		return how, nil
	}
	if r.Kind == Repair && how.NewContent(rec.Key) {
		rec.Fingerprint = dedup.FingerprintOf(r.Payload)
	}
	return how, how.Claims(rec)
}

// verdict returns what the committed claims answer to rec.
func verdict(rec dedup.Record, claimed map[dedup.Key]dedup.Fingerprint, horizon time.Time) dedup.Verdict {
	fingerprint, found := claimed[rec.Key]
	switch {
	case found && fingerprint.Matches(rec.Fingerprint):
		return dedup.Duplicate
	case found:
		return dedup.Mismatch
	case !driver.Provable(rec.Time, horizon):
		return dedup.Unprovable
	}
	return dedup.First
}

// foresee returns what becomes of a replay. verdicts answer what it claims. suspected says that an alias of its message
// is claimed.
func foresee(how decide.Replay, verdicts []dedup.Verdict, suspected bool) decide.Outcome {
	switch {
	case how.NeedsDecision():
		return decide.Outcome{Refused: observe.CauseUnknown}
	case len(verdicts) > 0:
		return how.Of(verdicts, suspected)
	case how.Repaired: // Config.Key may find a key in the new payload
		return decide.Outcome{Run: true}
	}
	return decide.Outcome{Refused: observe.CauseNoKey}
}
