package driver

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
)

// CallStore has a CallKeeper, for package calls.
//
// Without it calls.New refuses the Store.
type CallStore[TTx any] interface {
	Calls() CallKeeper[TTx]
}

// CallKeeper records, in the Store's database, the tries of calls to other systems. A call has the key of the claim that
// settles it. Each method except DropCall runs in a transaction of its own, at READ COMMITTED, and has committed when it
// returns nil. All times are those of the database's clock.
type CallKeeper[TTx any] interface {
	// Call returns what is known of a call, and the time. Without a record, Token is 0.
	Call(ctx context.Context, key dedup.Key) (Call, error)

	// BeginTry records a try that ends within `within`, before it begins. began is false, and nothing is recorded, if
	// the record is not `seen` any more, or if the call is settled. After an error the try may be recorded.
	//
	// A crash after BeginTry leaves a try whose answer is not known.
	BeginTry(ctx context.Context, key dedup.Key, seen Call, try Try) (began bool, err error)

	// TakeBackTry says that the try with that token has had no effect. The record becomes what it was before. If another
	// try has begun, nothing changes.
	TakeBackTry(ctx context.Context, key dedup.Key, token int64, before Call) error

	// AnswerCall records whether a call has happened. A person says it, who has seen the record with the token seen, or
	// the answer of the other system, with AnyToken. It replaces an earlier answer. recorded is false, and nothing is
	// recorded, if the record has another token by now, or if the call is settled.
	AnswerCall(ctx context.Context, key dedup.Key, seen int64, a Answer) (recorded bool, err error)

	// DropCall deletes the record as part of tx, which settles the call: with token 0 whatever it is, and otherwise only
	// if the latest try has that token. dropped says whether there was such a record.
	DropCall(ctx context.Context, tx TTx, key dedup.Key, token int64) (dropped bool, err error)
}

// AnyToken is for an answer that is right whatever the record is.
const AnyToken = -1

// Answer says whether a call has happened.
type Answer struct {
	Happened    bool
	Result      []byte // if it has happened
	Fingerprint dedup.Fingerprint
}

// Try is a try that begins.
type Try struct {
	Token       int64         // random, not 0
	Within      time.Duration // after that time it has ended, whatever becomes of its process
	Fingerprint dedup.Fingerprint
	// Earlier tries are known to have had no effect: only this one is unanswered then.
	Only bool
}

// Call is what is known of a call.
type Call struct {
	Now     time.Time
	Server  string            // names the server that has answered; on PostgreSQL, and when it was started
	Settled bool              // its key is claimed
	Claimed dedup.Fingerprint // of the claim

	// The fields below are those of the record. They are zero without one.
	Token       int64
	Fingerprint dedup.Fingerprint
	First       time.Time // when the first of the unanswered tries began
	Last        time.Time // when the latest try began
	Until       time.Time // when the latest try has ended
	Unanswered  int       // tries that may have reached the other system, and whose answer is not known
	Verdict     CallVerdict
	Result      []byte // of CallHappened
}

// CallVerdict is what is known of all tries of a call.
type CallVerdict int

// Verdicts.
const (
	CallUnknown  CallVerdict = iota
	CallAbsent               // it has not happened
	CallHappened             // it has happened
)
