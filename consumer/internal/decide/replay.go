package decide

import (
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// Replay is a dead letter, and how an operator wants it to be processed again. It decides what a consumer does with
// the letter, and what an operator's dry run says.
type Replay struct {
	Own   dedup.Record  // of the letter; Key.ID is empty if the message has no usable key
	Cause observe.Cause // of the letter

	Key   string // another business key to run under; empty: none
	AsNew bool   // a person has made sure that the message was not processed before

	Lacks       []string // the parts of the message that the letter does not have: see consumer.Shortened
	Repaired    bool     // a person has changed the message
	SamePayload bool     // and not its payload
}

// Outcome says what becomes of a replay.
type Outcome struct {
	Run bool // the handler runs
	// why not: it needs a person's decision first. Empty: the message was processed since, and the letter is removed
	Refused observe.Cause
}

// NeedsDecision reports whether the letter may only be replayed as new, whatever its claims answer: its effects may be
// committed.
func (r Replay) NeedsDecision() bool { return r.Cause == observe.CauseUnknown && !r.AsNew }

// NewContent reports whether the message needs a new fingerprint, if it runs under key. The payload that was parked
// keeps its fingerprint under another key, because its source may have given that. Under its own key a repaired message
// keeps the fingerprint of the original, so that a late redelivery of the original is a duplicate.
func (r Replay) NewContent(key dedup.Key) bool {
	return key != r.Own.Key && (r.Own.Fingerprint.IsZero() || !r.SamePayload)
}

// Claims returns the records to claim: rec, that the message runs under, and then that of the letter's own key if it is
// another one, which stays claimed, because the message that had it is processed then.
func (r Replay) Claims(rec dedup.Record) []dedup.Record {
	if r.AsNew {
		rec.Time = time.Time{} // it is never Unprovable
	}
	own := r.Own
	if own.Key == rec.Key || own.Key.ID == "" {
		return []dedup.Record{rec}
	}
	own.Time = time.Time{}
	return []dedup.Record{rec, own}
}

// Of says what becomes of the replay. verdicts answer Claims. aliasTaken says that another message has claimed one of
// the message's aliases.
func (r Replay) Of(verdicts []dedup.Verdict, aliasTaken bool) Outcome {
	otherKey := r.Key != "" && r.Key != r.Own.Key.ID
	v := verdicts[0]
	switch {
	case r.NeedsDecision():
		return Outcome{Refused: observe.CauseUnknown}
	case r.Cause == observe.CauseUnknown: // a claim of its own key proves nothing
		if verdicts = verdicts[:1]; !otherKey {
			verdicts = nil
		}
	}
	switch {
	case slices.Contains(verdicts, dedup.Duplicate):
		return Outcome{}
	case v == dedup.Mismatch, r.Cause == observe.CauseMismatch && !otherKey:
		return Outcome{Refused: observe.CauseMismatch}
	case !r.AsNew && (v == dedup.Unprovable || r.Cause == observe.CauseUnprovable):
		return Outcome{Refused: observe.CauseUnprovable}
	case !r.AsNew && (aliasTaken || r.Cause == observe.CauseKnownContent):
		return Outcome{Refused: observe.CauseKnownContent}
	case r.incomplete():
		return Outcome{Refused: observe.CauseUndecodable}
	}
	return Outcome{Run: true}
}

// incomplete reports whether the message is not the whole one that was delivered.
func (r Replay) incomplete() bool {
	return len(r.Lacks) > 0 && (!r.Repaired || slices.Contains(r.Lacks, "payload") && r.SamePayload)
}
