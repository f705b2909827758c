package calls

import (
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// step is what a publication of a call does.
type step int

const (
	already  step = iota // nothing: the call is settled
	mismatch             // refuse: the ID belongs to a call with other content
	record               // run Done: the call has happened, and its result is known
	do                   // Do
	doOnly               // Do; earlier tries are known to have had no effect
	ask                  // Find; then record or doOnly
	wait                 // not yet: a request may be under way
	inDoubt              // park: nothing can tell whether the call has happened
)

// rules are a Config.
type rules struct {
	keeps   time.Duration // 0: the other system has no idempotency keys
	margin  time.Duration // how long before the end of keeps a request may begin at the latest
	timeout time.Duration
	settles time.Duration
	window  time.Duration // how long a claim is kept at least
	find    bool          // the other system can be asked
}

// longest is more than any try lasts.
const longest = time.Hour

// quiet returns when no request can be under way any more, of the recorded tries, and of those whose records were lost.
func (r rules) quiet(c driver.Call, db database) time.Time {
	quiet := c.Until.Add(r.settles)
	// If the clock was set back since, the record may say anything.
	setBack := c.Last.After(c.Now.Add(r.settles)) || c.Until.After(c.Now.Add(max(longest, r.timeout)))
	if setBack || quiet.Before(db.quiet) {
		return db.quiet
	}
	return quiet
}

// decide says what to do about a call whose message is due since then, and that has this fingerprint. until is when
// wait ends.
func decide(c driver.Call, db database, due time.Time, f dedup.Fingerprint, r rules) (s step, until time.Time) {
	switch {
	case c.Settled && !c.Claimed.Matches(f), c.Token != 0 && !c.Fingerprint.Matches(f):
		return mismatch, until
	case c.Settled:
		return already, until
	case c.Verdict == driver.CallHappened:
		return record, until
	case c.Verdict == driver.CallAbsent:
		return doOnly, until
	}
	// The key is remembered from the first request on. A record may have been lost with the end of the database, so the
	// first request may have been sent as soon as the message was due.
	first := due
	if c.Unanswered > 0 && c.First.Before(first) { // a message with the same ID was there before
		first = c.First
	}
	clockSetBack := c.Now.Before(first.Add(-r.settles)) // then nothing is known about the time since
	quiet := db.quiet
	switch {
	case clockSetBack:
	case r.remembers(first, c.Now):
		return do, until
	case c.Unanswered > 0:
		quiet = r.quiet(c, db)
	case r.keeps == 0 && !r.find && c.Now.Before(due.Add(r.window)):
		return do, until
	}
	switch {
	case r.find && c.Now.Before(quiet):
		return wait, quiet
	case r.find:
		return ask, until
	}
	return inDoubt, until
}

// remembers reports whether a request at now arrives while the other system knows a key that it got at first or later.
func (r rules) remembers(first, now time.Time) bool {
	return r.keeps > 0 && now.Before(first.Add(r.keeps-r.margin))
}
