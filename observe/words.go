package observe

// Outcome is what happened to one message.
type Outcome string

// The outcomes of a message. In a relay, the message is one of the outbox.
const (
	Processed Outcome = "processed" // its effects are committed; in a relay, the broker has confirmed it
	Duplicate Outcome = "duplicate" // it was processed before
	Parked    Outcome = "parked"    // it was given up and is kept for a person
	Retried   Outcome = "retried"   // an attempt failed and counts; the message is delivered again
	// no attempt is counted, because the message waits for something else; it is delivered again
	Held     Outcome = "held"
	Rejected Outcome = "rejected" // it was given up, and the store does not keep dead letters
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Processed, Duplicate, Parked, Retried, Held, Rejected} }

// Cause is why a message was not processed, why a transaction failed, or why work pauses. Each dead letter has one.
type Cause string

// The causes.
const (
	CauseHandler     Cause = "handler"     // the handler returned an error; in a relay, the Publisher did
	CausePermanent   Cause = "permanent"   // the error says that another attempt would only repeat it
	CauseExhausted   Cause = "exhausted"   // it failed too often
	CausePanic       Cause = "panic"       // the handler or another function of the user panicked
	CauseMismatch    Cause = "mismatch"    // its key was used for other content
	CauseUnprovable  Cause = "unprovable"  // it is older than the keys that the store remembers, and has no claim
	CauseNoKey       Cause = "no_key"      // it has no usable business key
	CauseUndecodable Cause = "undecodable" // it cannot be read, or cannot be decoded
	CauseInFlight    Cause = "in_flight"   // another transaction holds its key
	CauseDatabase    Cause = "database"    // the database failed
	CauseCancelled   Cause = "cancelled"   // the process stops, or the caller no longer waits
	CauseBudget      Cause = "budget"      // too many messages were parked: Config.ParkLimit is spent

	CauseKnownContent Cause = "known_content" // its content (consumer.Message.Aliases) is known, but its ID is new
	CauseCrashed      Cause = "crashed"       // processes ended while they tried it alone
	// the broker is unavailable, or a topic is missing or closed to this client
	CauseBroker Cause = "broker"

	// CauseUnknown says that a handler ended the transaction that claimed the message, so it is unknown whether its
	// effects are committed.
	CauseUnknown Cause = "outcome_unknown"
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{
		CauseHandler, CausePermanent, CauseExhausted, CausePanic, CauseMismatch, CauseUnprovable, CauseNoKey,
		CauseUndecodable,
		CauseInFlight, CauseDatabase, CauseCancelled, CauseBudget, CauseKnownContent, CauseCrashed, CauseBroker,
		CauseUnknown,
	}
}

// Result is how a transaction ended.
type Result string

// The results of a transaction.
const (
	Committed     Result = "committed"
	RolledBack    Result = "rolled_back"
	Deadlock      Result = "deadlock"       // the database rolled it back because of another transaction
	CommitUnknown Result = "commit_unknown" // the answer to COMMIT was lost; a later claim shows what happened
)

// Results returns all results.
func Results() []Result { return []Result{Committed, RolledBack, Deadlock, CommitUnknown} }
