package engine

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Outbox is what databases differ in where the outbox is concerned. Each tx is one that the Store has begun, at READ COMMITTED or
// above, except where a comment says otherwise.
type Outbox struct {
	Writer     Writer
	Holds      Holds
	Leases     Leases
	Settler    Settler
	Upkeep     Upkeep
	Operations Operations
}

// Writer writes messages, in a transaction of the caller's.
type Writer interface {
	// Enqueue writes msgs, which have IDs.
	Enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error
	// LockOrderingKey makes the transaction wait for others that have called it with key.
	LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error
	// Notify tells other processes of a commit, where the database can. It returns at once.
	Notify(ctx context.Context)
}

// Holds divides the shards among sessions.
type Holds interface {
	// Renew extends a hold, or begins it, and reads what others hold.
	Renew(ctx context.Context, tx *sql.Tx, by *Hold) (Share, error)
	// Take takes up to n shards that no living session holds, and returns them with their tokens.
	TakeDeadLetter(ctx context.Context, tx *sql.Tx, by *Hold, n int) (map[int]int64, error)
	// GiveBack gives back shards.
	GiveBack(ctx context.Context, tx *sql.Tx, by *Hold, shards []int) error
	// Leave ends a hold.
	Leave(ctx context.Context, tx *sql.Tx, by *Hold) error
}

// Leases finds and reads messages that are due.
type Leases interface {
	// Reading runs f, again and again where another connection is writing. q is where f reads.
	Reading(ctx context.Context, f func(ctx context.Context, q Queryer) error) error
	// Leasable says where there is something to lease. It fails with outbox.ErrLeaseLost when the hold's time is over.
	Leasable(ctx context.Context, q Queryer, by *Hold) (Leasable, error)
	// MoveDue moves delayed messages whose time has come into the outbox, no more than limit.
	MoveDue(ctx context.Context, tx *sql.Tx, limit int) error
	// Lease reads what is due of shards, whose tokens these are, in the order of Seq, within want.Limit and want.Bytes.
	Lease(ctx context.Context, q Queryer, by *Hold, shards []int, tokens map[int]int64, want outbox.Want) ([]outbox.Leased, error)
}

// Settler ends leases.
type Settler interface {
	// Own fails with outbox.ErrLeaseLost where tokens, by shard, are no longer the hold's, and keeps it so until the end of q.
	Own(ctx context.Context, q Queryer, by *Hold, tokens map[int]int64) error
	// Settle begins with Own. What an earlier attempt has done already does not happen again.
	Settle(ctx context.Context, tx *sql.Tx, by *Hold, tokens map[int]int64, do *Outcomes) error
}

// Outcomes are the outcomes of leased messages, each list in the order of shards and sequence numbers.
type Outcomes struct {
	Sent, Deferred, Parked []outbox.Outcome
	Follow                 []int // shards in which messages behind parked ones follow them: nothing else is leased there
}

// Upkeep does what is not urgent.
type Upkeep interface {
	// Untidy says which of shards may have messages behind parked ones, and whether Forget has something to do.
	Untidy(ctx context.Context, shards []int) (behind []int, forget bool, err error)
	// Follow parks messages behind parked ones, of shards of which nothing is leased.
	Follow(ctx context.Context, tx *sql.Tx, by *Hold, tokens map[int]int64) error
	// Forget deletes what is over: holds on keys, holds of relays, sent messages that were kept for long enough. Each is bounded.
	Forget(ctx context.Context, tx *sql.Tx) error
	// Rescue ends what Repair left half-done in a process that died.
	Rescue(ctx context.Context, run Run, shards []int) error
}

// Operations is for people.
type Operations interface {
	// Repair is Unpark or Discard of outbox.Operations.
	Repair(ctx context.Context, run Run, seqs []int64, unpark bool) (int, error)
	Parked(ctx context.Context, q Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error)
	StatsStatements(ctx context.Context, q Queryer) (*StatsStatements, error)
}

// StatsStatements are what Stats asks. Count is one statement, because each statement sees a moment of its own: of two, a message
// that moves could be seen by neither.
type StatsStatements struct {
	Clock, Count, Relays string
	CountArgs            []any
}

// CountedPerShard is how many pending messages of a shard Stats counts. Those behind them are estimated.
const CountedPerShard = 250

// How much Upkeep does in one transaction.
const (
	FollowAtOnce = 1000 // of a shard's first messages are looked through for those behind a parked one
	ForgetAtOnce = 2000
)

// Hold is one session's row in txonce_relays.
type Hold struct {
	Owner [16]byte
	Name  string
	TTL   time.Duration
	Begun bool // the row is there, or was
}

// Hex is the owner as digits.
func (h *Hold) Hex() string { return hex.EncodeToString(h.Owner[:]) }

// Share is what a session holds, and what others do.
type Share struct {
	Tokens           map[int]int64    // by shard
	Free             []int            // shards that no living session holds
	Others           map[string]int64 // see shares.View
	Shards, SameName int
}

// Leasable is where a session may find something.
type Leasable struct {
	Tokens map[int]int64 // of shards of the session that have messages
	Due    bool          // the time of delayed messages has come
}
