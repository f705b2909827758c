package decide

import (
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

const (
	// AloneMost is how many messages may meet database errors while none is committed, for one of them to be blamed.
	// More of them are a sign that the database is at fault.
	AloneMost = 3

	// InFlightToWarn is how many times in a row a key is found in flight before that is logged: a frozen process keeps
	// its claims until the database ends its transaction.
	InFlightToWarn = 10

	// ContendedToWarn is how many times in a row a message loses to other transactions before that is logged.
	ContendedToWarn = 20
)

// Past is what a process remembers about a message that has failed, until the message is committed or parked. The zero
// value is that of a message which the process does not know.
type Past struct {
	Survived bool // this process has tried the message alone and has not ended
	Failures int  // attempts that counted
	InFlight int  // how many times in a row another transaction held the key

	// errors of the database that the message met alone; without a commit of others between them, two count as one
	Faults  int
	Times   int  // the same, each of them
	Commits int  // Now.Commits at the latest of them
	Timed   bool // the latest one was an exceeded limit of time
	Blamed  bool // such errors count

	Contended        int // how many times in a row it lost to other transactions
	ContendedCommits int // Now.Commits at the latest time
}

// Known reports whether the process has tried the message before, with an outcome.
func (p Past) Known() bool { return p.Survived || p.Failures > 0 || p.Culprit() }

// Culprit reports whether the message has met errors of the database alone, so that it must not cost others their work.
func (p Past) Culprit() bool { return p.Faults > 0 || p.Contended > 0 }

// Now are the circumstances of a message that fails.
type Now struct {
	Attempt, MaxAttempts int

	GiveUp    bool // Message.GiveUpAt has passed: the source may stop delivering it
	Deferrals int  // how many times in a row the pass has held the message

	Commits int // messages whose handlers this process has committed
	Faulty  int // other messages that have met errors of the database and are not committed or parked yet

	ShortWaits bool // its transaction did not wait long for locks
	// its claim was answered in a small part of the time that its handler took, so the database was not slow
	Quick bool
}

// Do is what becomes of a message.
type Do uint8

const (
	Hold  Do = iota // it comes again, and no attempt is counted
	Pause           // the same, because the database fails: the whole consumer waits
	Retry           // it comes again, and the attempt is counted
	Park            // it is given up
	Done            // nothing is left to do: it is parked, or was committed
)

// Verdict says what becomes of a message.
type Verdict struct {
	Do    Do
	Cause observe.Cause

	// How long the message waits: Config.Backoff of that many attempts, or if Backoff is 0, After.
	Backoff int
	After   time.Duration

	Counted bool // the failure was counted as an attempt
	Fault   bool // the database was or may have been at fault
	Warn    Warning
	Times   int // how often that was so
}

// Warning is something that a person should know.
type Warning uint8

// The warnings, each of them made once for a message.
const (
	NoWarning     Warning = iota
	WarnInFlight          // another transaction holds its key for too long
	WarnContended         // it loses to other transactions for too long
	WarnBlamed            // errors of the database count against it from now on
)

// OfMessage decides about a message that failed with f in a transaction of its own. It returns what to remember in
// place of p.
func OfMessage(f Failure, p Past, n Now) (Verdict, Past) {
	switch {
	case f.Late: // this counts, whatever other errors the end of its ctx has caused
	case f.InFlight:
		p.InFlight++
		v := Verdict{Do: Hold, Cause: observe.CauseInFlight, Backoff: max(n.Deferrals+1, p.InFlight)}
		return v.warn(WarnInFlight, p.InFlight, InFlightToWarn), p
	case f.Database && f.Class == driver.FaultContention:
		return contended(p, n)
	case f.Database: // even if the handler made it Permanent
		known := p.Blamed
		p, counts := blame(f, p, n)
		if !counts {
			return Verdict{
				Do: Pause, Cause: observe.CauseDatabase, Backoff: max(n.Deferrals+1, p.Faults),
				Fault: true,
			}, p
		}
		v, p := judge(f, p, n)
		if !known {
			v.Warn, v.Times = WarnBlamed, p.Times
		}
		return v, p
	}
	return judge(f, p, n)
}

// contended decides about a message that lost to other transactions. That never counts: the message is committed as
// soon as the others leave it the rows. If nothing is committed meanwhile, whatever holds the rows is treated as a
// failure of the database.
func contended(p Past, n Now) (Verdict, Past) {
	others := n.Commits > p.ContendedCommits
	p.Contended, p.ContendedCommits, p.Timed = p.Contended+1, n.Commits, false
	v := Verdict{Do: Hold, Cause: observe.CauseDatabase, Backoff: max(n.Deferrals+1, p.Contended), Fault: true}
	if p.Contended > 1 && !others {
		v.Do, v.Backoff = Pause, max(n.Deferrals+1, p.Faults)
	}
	return v.warn(WarnContended, p.Contended, ContendedToWarn), p
}

// blame finds out whether f, an error of the database, counts as an attempt. It does when the message meets such errors
// again and again while other messages are committed. An exceeded limit of time also counts when no other message shows
// that the database works; after a slow claim it counts much later, because the database was slow before the handler
// ran, and a limit of the whole transaction includes that time. A disagreement of clocks never counts.
func blame(f Failure, p Past, n Now) (_ Past, counts bool) {
	if f.Clocks {
		return p, false
	}
	others := p.Faults > 0 && n.Commits > p.Commits
	p.Timed = f.Class == driver.FaultTimeLimit
	p.Times++
	if p.Faults == 0 || others {
		p.Faults++
	}
	p.Commits = n.Commits
	if p.Timed && !n.ShortWaits && !f.Unnamed { // it may have waited for a lock
		return p, false
	}
	beside := f.Counts.Beside
	if p.Timed && !n.Quick {
		beside = max(beside, f.Counts.Alone)
	}
	counts = others && p.Faults >= beside
	if !counts && f.Counts.Alone > 0 && p.Times >= f.Counts.Alone {
		counts = f.Class == driver.FaultIdleLimit || n.Quick && n.Faulty < AloneMost
	}
	p.Blamed = p.Blamed || counts
	return p, counts
}

// judge decides about a message whose failure is its own.
func judge(f Failure, p Past, n Now) (Verdict, Past) {
	attempt := max(n.Attempt, 1)
	switch {
	case f.Asked && f.Held && !f.Late && !f.Refused && !f.Permanent:
		return Verdict{Do: Hold, Cause: f.Cause, After: f.After}, p
	case f.Refused:
		return Verdict{Do: Park, Cause: f.Cause}, p
	case f.Permanent:
		return Verdict{Do: Park, Cause: givenUp(f), Counted: true}, p
	}
	p.Failures++
	switch {
	case spent(p.Failures, attempt, n):
		return Verdict{Do: Park, Cause: givenUp(f), Counted: true}, p
	case f.Asked:
		return Verdict{Do: Retry, Cause: f.Cause, After: f.After, Counted: true}, p
	}
	return Verdict{Do: Retry, Cause: f.Cause, Backoff: attempt, Counted: true}, p
}

// spent reports whether a message that failed once more is given up. The broker's count of attempts may include
// crashes, stops and lost answers, so this process must also have seen two failures. The count alone decides when it is
// too high for that, as when each attempt reaches another process. When the source may stop delivering the message, the
// first failure decides.
func spent(seen, attempt int, n Now) bool {
	return attempt >= n.MaxAttempts && seen >= min(2, n.MaxAttempts) || attempt >= max(100, 10*n.MaxAttempts) ||
		n.GiveUp
}

// givenUp returns the cause for parking a message whose handler failed.
func givenUp(f Failure) observe.Cause {
	switch {
	case f.Panic:
		return observe.CausePanic
	case f.Permanent:
		return observe.CausePermanent
	}
	return observe.CauseExhausted
}

func (v Verdict) warn(w Warning, times, at int) Verdict {
	if times == at {
		v.Warn, v.Times = w, times
	}
	return v
}
