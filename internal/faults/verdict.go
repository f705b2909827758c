package faults

import "fmt"

// Operation is what a program does when it meets an error of the database.
type Operation string

// The operations.
const (
	Register Operation = "register" // Consumer.Start, and the first message
	Claim    Operation = "claim"    // before the handler runs
	Handler  Operation = "handler"  // a statement of the handler
	Enqueue  Operation = "enqueue"  // in the handler's transaction
	Commit   Operation = "commit"
	Park     Operation = "park"
	Lease    Operation = "lease"  // a relay takes shards and reads messages
	Settle   Operation = "settle" // a relay records what was published or parked
	Defer    Operation = "defer"  // a relay records when it tries a message again
	Sweep    Operation = "sweep"
	Replay   Operation = "replay"
)

// Do is what follows from an error.
type Do string

// What follows.
const (
	// nothing is counted; the caller waits, the longer the more errors follow each other, and tries again
	Pause    Do = "pause"
	Retry    Do = "retry"     // nothing is counted; this message alone waits, and is tried again
	Count    Do = "count"     // one attempt of this message has failed; after MaxAttempts it is parked
	Refuse   Do = "refuse"    // the program does not start, and the error says what to change
	SetAside Do = "set aside" // this row alone is parked with what can be stored, or waits; all others go on
)

// Verdict says what follows from an error. Errors of the class count as attempts of the message that meets them in
// transactions of its own from the Beside'th time on if other messages are committed between them, and from the
// Alone'th on if no other message comes; 0: never. An exceeded time limit after a slow claim counts from the Alone'th
// time on if other messages are committed, and otherwise never.
type Verdict struct {
	Do            Do
	Beside, Alone int
}

const (
	secondTime = 2

	// manyTimes is where errors begin to count that a message rarely causes: its handler always breaks its connection.
	manyTimes = 21

	// aloneTimes is where an exceeded time limit begins to count when nothing else comes that could show that the
	// database works.
	aloneTimes = 10
)

// After returns what follows from an error of class c in operation o.
func (d Database) After(c Class, o Operation) Verdict {
	switch o {
	case Register:
		return d.atRegister(c)
	case Commit:
		if Undecided(c) && c != timeLimit { // whatever may have been committed, the next claim shows it
			return Verdict{Do: Pause, Beside: manyTimes}
		}
		return d.inHandler(c)
	case Handler, Enqueue:
		return d.inHandler(c)
	case Park, Settle, Defer: // these write what a message has: no retry makes the database accept it
		if c == data || c == unknown && o == Park {
			return Verdict{Do: SetAside}
		}
	case Claim, Lease, Sweep, Replay: // the statements are txonce's own, and no message is to blame
	}
	return Verdict{Do: Pause}
}

func (d Database) atRegister(c Class) Verdict {
	if d.Refused(c) || c == deployment || c == data || c == unknown {
		return Verdict{Do: Refuse}
	}
	return Verdict{Do: Pause}
}

func (d Database) inHandler(c Class) Verdict {
	switch c {
	case unknown, data, aborted:
		return Verdict{Do: Count}
	case access:
		if d == Postgres { // this session was let in, so a function of the application has raised it
			return Verdict{Do: Count}
		}
	case contention:
		return Verdict{Do: Retry}
	case timeLimit:
		return Verdict{Do: Pause, Beside: secondTime, Alone: aloneTimes}
	case idleLimit:
		return Verdict{Do: Pause, Beside: secondTime, Alone: secondTime}
	case permission, deployment, transaction, limit, internal:
		return Verdict{Do: Pause, Beside: secondTime}
	default:
	}
	return Verdict{Do: Pause, Beside: manyTimes}
}

func (v Verdict) String() string {
	switch {
	case v.Alone > 0 && v.Alone == v.Beside:
		return fmt.Sprintf("%s; count from the %s time", v.Do, ordinal(v.Beside))
	case v.Alone > 0:
		return fmt.Sprintf("%s; count from the %s time beside commits, from the %s alone", v.Do, ordinal(v.Beside),
			ordinal(v.Alone))
	case v.Beside > 0:
		return fmt.Sprintf("%s; count from the %s time beside commits", v.Do, ordinal(v.Beside))
	}
	return string(v.Do)
}

func ordinal(n int) string {
	switch n {
	case secondTime:
		return "2nd"
	case manyTimes:
		return "21st"
	}
	return fmt.Sprintf("%dth", n)
}
