// Package decide says what follows when a consumer's transaction fails, when a message fails, and when a message was to
// be parked. It is the policy of package consumer, and nothing else: its functions take plain values and return plain
// values, and use no ctx, clock, logger or database. Package consumer fills in the values and carries out the result.
//
// Three questions are kept apart:
//
//   - OfTransaction: a transaction of some messages has failed. Which of them are tried again, and how are they
//     divided?
//   - OfMessage: a message has failed in a transaction of its own. Is it held, tried again or parked?
//   - AfterPark: parking a message was tried. What follows from the result?
package decide

import (
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/observe"
)

// Failure is what is known about a transaction that has failed.
type Failure struct {
	Cause observe.Cause // its name in metrics and dead letters

	Cancelled bool // the pass was told to end
	InFlight  bool // another transaction holds a key
	Refused   bool // the message must not run, whatever its handler would do: Cause says why
	Late      bool // the handler exceeded Config.HandlerTimeout
	Panic     bool // the handler panicked
	Permanent bool // another attempt would only repeat it, or make it worse
	Clocks    bool // the clocks of this machine and of the database disagree

	// Database says that the store calls the error Retryable. Then Class says which kind of error it is, Unnamed that
	// the store does not tell classes, Counts from which time on it counts against the message that meets it, and
	// Ambiguous that a handler's statement may be at fault.
	Database  bool
	Class     driver.FaultClass
	Unnamed   bool
	Counts    faults.Verdict
	Ambiguous bool

	// What became of the transaction. Ended: a handler ended it. RolledBack: it is known that nothing was committed.
	// Maybe: the store could not find out whether a handler ended it.
	Ended, RolledBack, Maybe bool

	// Asked says that the handler has chosen when to try again, after After, and Held that this attempt must not count.
	Asked, Held bool
	After       time.Duration
}

// waited reports whether the error may be due to other transactions that held locks. shortWaits says that the
// transaction did not wait long for any.
func (f Failure) waited(shortWaits bool) bool {
	return f.Class == driver.FaultContention || f.Class == driver.FaultTimeLimit && !shortWaits
}
