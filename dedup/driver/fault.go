package driver

import "github.com/txonce/txonce/observe"

// FaultClass says what kind of failure an error of the database is. docs/operations.md has a table of what follows from
// each class.
type FaultClass string

// The classes.
const (
	FaultUnknown    FaultClass = ""             // not an error of the database, as far as the Store knows
	FaultConnection FaultClass = "connection"   // the connection was lost, or the server shuts down
	FaultServer     FaultClass = "server state" // the server takes no writes: a standby, after a failover
	// the server refuses the user or the database; the file cannot be opened
	FaultAccess     FaultClass = "access"
	FaultPermission FaultClass = "permission" // the user may not do this
	// a table, column or function is missing, or the statement is wrong
	FaultDeployment FaultClass = "deployment"
	// another transaction held or changed the rows: a deadlock, a lost race, a wait that was too long
	FaultContention FaultClass = "contention"
	// the server cut a statement or transaction that lasted too long, for its own sake or because it waited
	FaultTimeLimit FaultClass = "time limit"
	// the handler sent no statement for too long, and the server ended its transaction
	FaultIdleLimit FaultClass = "idle limit"
	FaultLimit     FaultClass = "configured limit" // a limit other than of time, such as that of temporary files
	FaultResources FaultClass = "resources"        // out of disk, memory or connections
	FaultStorage   FaultClass = "storage"          // I/O errors, broken files
	// an internal error of the server, which may be a statement's fault
	FaultInternal FaultClass = "internal"
	// a prepared statement is missing or outdated; the next session works
	FaultSession FaultClass = "session"
	// a statement that is not allowed in this state of the transaction
	FaultTransaction FaultClass = "transaction state"
	// the server refuses these values or this statement: another attempt repeats it
	FaultData FaultClass = "data"
	// an earlier statement of the transaction failed, and its class decides
	FaultAborted FaultClass = "aborted"
)

// FaultClassifier says more about an error than Store.Retryable.
//
// Without it each Retryable error counts as a lost connection: a missing column, a statement that one message makes too
// slow, and a deadlock are tried 20 times before the message is parked, and waits for locks count like faults.
type FaultClassifier interface {
	// FaultClass tells the class of an error of InTx. A consumer handles three classes in their own way:
	//
	//   - FaultContention never counts as an attempt. Messages that meet it again and again run one after the other.
	//   - FaultTimeLimit does not count at first, because the statement may have waited for a lock. The message runs
	//     again with WithoutLockWaits. If it exceeds the limit there too, that counts like an Ambiguous error. After a
	//     slow claim, or if no other message comes, it counts from the tenth time on.
	//   - FaultIdleLimit counts from the second time on, whether or not others are committed: the handler itself sent
	//     nothing.
	FaultClass(err error) FaultClass

	// Ambiguous reports of a Retryable error that either the database or the handler is at fault: a missing table or
	// column, a refused permission, a statement or a transaction that exceeds a limit of time. While no message is
	// committed, a consumer pauses and counts no attempt. If other messages are committed between two such errors of
	// one message, it counts the second and each further one as an attempt.
	//
	// Ambiguous is false for lost connections, failovers, deadlocks, serialization failures and stale cached plans: of
	// these errors of one message, only the 21st and later ones count, and none if the class is FaultContention.
	Ambiguous(err error) bool

	// Result returns observe.Deadlock, CommitUnknown or RolledBack for an error of InTx. An error that it does not know
	// is RolledBack. It is for metrics: only another claim proves what happened.
	Result(err error) observe.Result
}
