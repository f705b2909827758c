package decide

import (
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// Doubt says what is known about a message that an earlier transaction has claimed, perhaps without its effects.
type Doubt struct {
	Any       bool // the message is in doubt
	OwnEffect bool // its own handler ended the transaction: its effects may be committed without a claim
	Maybe     bool // a claim that is found now may be that of the transaction in doubt
}

// OfClaim says what a claim of the message's own key means. Run: the handler must run, unless refused is not empty:
// then the message must not run, for that cause. If neither, the message is a duplicate. Settled says that the message
// is not in doubt any more. alias says that another message has claimed one of its aliases.
func OfClaim(v dedup.Verdict, d Doubt, alias, mismatchIsDuplicate bool) (run bool, refused observe.Cause, settled bool) {
	// a new claim shows that the transaction in doubt is not committed
	settled = d.Any && (v == dedup.First || !d.Maybe)
	switch {
	case v == dedup.First && alias:
		return false, observe.CauseKnownContent, settled
	case v == dedup.First:
		return true, "", settled
	case v == dedup.Unprovable:
		return false, observe.CauseUnprovable, settled
	case v == dedup.Mismatch && !mismatchIsDuplicate:
		return false, observe.CauseMismatch, settled
	case d.Any && !settled: // the claim proves nothing
		return false, observe.CauseUnknown, false
	}
	return false, "", settled
}

// Parked is the result of an attempt to park a message.
type Parked uint8

const (
	Written   Parked = iota // its letter is committed
	Committed               // its effects turned out to be committed
	// its key turned out to be free: it is not a mismatch any more, or the transaction in doubt was rolled back
	Free
	Limited  // Config.ParkLimit is spent
	KeyHeld  // another transaction holds its key
	Unstored // the database refuses this letter, and would refuse it again
	Failed   // the database fails
	NoLot    // the store keeps no dead letters, so the message is rejected
)

// Letter is what the claim of a message that is parked for a cause turned out to mean.
type Letter struct {
	Cause  observe.Cause // of the letter, from now on
	Result Parked        // Written: write it
	Forget bool          // the claim was made now, and must not stay
}

// OfLetter says what claim means for a message that is being parked for cause. The claim shows whether an earlier
// COMMIT whose answer was lost has happened. Only the claim of a message whose own handler ended its transaction stays:
// its effects may be committed, so that a redelivery must not run.
func OfLetter(cause observe.Cause, claim dedup.Verdict, d Doubt, mismatchIsDuplicate bool) Letter {
	unknown := cause == observe.CauseUnknown
	l := Letter{Cause: cause}
	switch {
	case claim == dedup.First && unknown && d.OwnEffect:
	case claim == dedup.First:
		if l.Forget = true; unknown || cause == observe.CauseMismatch {
			l.Result = Free
		}
	case claim == dedup.Mismatch && unknown:
	case claim == dedup.Mismatch:
		if l.Cause = observe.CauseMismatch; mismatchIsDuplicate {
			l.Result = Committed
		}
	case !d.Any || !d.Maybe:
		l.Result = Committed
	default: // the claim proves nothing; it stays, so that a redelivery does not run
		l.Cause = observe.CauseUnknown
	}
	return l
}

// AfterPark says what becomes of a message after an attempt to park it, for v. counted is the verdict of its latest
// failure that was counted as an attempt, if there is one: it holds when a message that was in doubt turns out not to
// be committed.
func AfterPark(r Parked, v Verdict, counted *Verdict, p Past, n Now) Verdict {
	hold := Verdict{Do: Hold, Cause: v.Cause, Backoff: 1}
	switch r {
	case Written, Committed, NoLot:
		return Verdict{Do: Done, Cause: v.Cause}
	case Free:
		if v.Cause == observe.CauseUnknown && counted != nil {
			return *counted
		}
		return hold
	case Limited:
		hold.Cause, hold.Backoff = observe.CauseBudget, 0
	case KeyHeld:
		hold.Cause, hold.Backoff = observe.CauseInFlight, n.Deferrals+1
	case Unstored: // it waits alone
		hold.Cause, hold.Backoff = observe.CauseDatabase, max(n.Deferrals, p.Faults)+1
	case Failed:
		return Verdict{Do: Pause, Cause: observe.CauseDatabase, Backoff: max(n.Deferrals+1, p.Faults)}
	}
	return hold
}

// BeforeHandlers reports whether a message that is parked for cause was refused before a handler ran, because of the
// message or its claim. It then says nothing about the handlers. prepared says that it was refused before it was
// claimed.
func BeforeHandlers(cause observe.Cause, prepared bool) bool {
	switch cause {
	case observe.CauseMismatch, observe.CauseKnownContent, observe.CauseUnprovable, observe.CauseNoKey,
		observe.CauseUndecodable:
		return true
	case observe.CausePermanent:
		return prepared
	default:
		return false
	}
}
