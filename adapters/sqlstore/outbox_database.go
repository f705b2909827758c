package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/outbox"
)

// outboxDatabase is what the databases differ in where the outbox is concerned. Each tx is one that the Store has begun, at
// READ COMMITTED or above, except where a comment says otherwise.
type outboxDatabase interface {
	// enqueue writes msgs, which have IDs, in a transaction of the caller's.
	enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error
	// serialize makes a transaction of the caller's wait for others that have called it with key.
	serialize(ctx context.Context, tx *sql.Tx, key string) error

	// renew extends a hold, or begins it, and looks around.
	renew(ctx context.Context, tx *sql.Tx, by *outboxHold) (outboxShare, error)
	// take takes up to n shards that nobody living holds, and returns them with their tokens.
	take(ctx context.Context, tx *sql.Tx, by *outboxHold, n int) (map[int]int64, error)
	// giveBack gives back shards.
	giveBack(ctx context.Context, tx *sql.Tx, by *outboxHold, shards []int) error
	// leave ends a hold.
	leave(ctx context.Context, tx *sql.Tx, by *outboxHold) error

	// reading runs f, again and again where another connection is writing; q is where to read.
	reading(ctx context.Context, f func(ctx context.Context, q queryer) error) error
	// look says where there is something to lease. It fails with outbox.ErrLeaseLost when the hold has run out.
	look(ctx context.Context, q queryer, by *outboxHold) (outboxSight, error)
	// come moves messages whose time has come into the outbox, no more than limit.
	come(ctx context.Context, tx *sql.Tx, limit int) error
	// lease reads what is due of shards, whose tokens these are, in the order of Seq, within want.Limit and want.Bytes.
	lease(ctx context.Context, q queryer, by *outboxHold, shards []int, tokens map[int]int64, want outbox.Want) ([]outbox.Leased, error)

	// own fails with outbox.ErrLeaseLost where tokens, by shard, are no longer the hold's, and keeps it so until the end of q.
	own(ctx context.Context, q queryer, by *outboxHold, tokens map[int]int64) error
	// settleLeases ends leases; of what an earlier attempt has done already, nothing happens again. It begins
	// with own. Messages behind parked ones follow them, in those
	// shards of which nothing else is leased: idle.
	settleLeases(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64, outcomes []outbox.Outcome, idle []int) error

	// untidy says which of shards have messages behind parked ones, perhaps, and whether forget has something to do.
	untidy(ctx context.Context, shards []int) (behind []int, forget bool, err error)
	// follow parks messages behind parked ones, of shards of which nothing is leased.
	follow(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64) error
	// forget deletes what is over: holds on keys, hold of relays, sent messages that were kept for long enough. Each is bounded.
	forget(ctx context.Context, tx *sql.Tx) error
	// rescue ends what a process left half-done that died in repair.
	rescue(ctx context.Context, run outboxRun, shards []int) error

	// repair is Unpark and Discard of outbox.Operations.
	repair(ctx context.Context, run outboxRun, seqs []int64, unpark bool) (int, error)
	parked(ctx context.Context, q queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error)
	statsStatements(ctx context.Context, q queryer) (*outboxStatsStatements, error)

	// collided reports that the server rolled a transaction back because it and another one waited for each other.
	collided(err error) bool

	// notify tells other processes of a commit, where the database can. It returns at once.
	notify(ctx context.Context)
}

// outboxRun runs a function in a transaction.
type outboxRun func(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error

// outboxHold is one session's row in txonce_relays.
type outboxHold struct {
	owner [16]byte
	name  string
	ttl   time.Duration
	begun bool // the row is there, or was
}

// outboxShare is what a session holds, and what others do.
type outboxShare struct {
	tokens           map[int]int64    // by shard
	free             []int            // shards that nobody living holds
	others           map[string]int64 // see shares.View
	shards, sameName int
}

// add notes a row of txonce_shards.
func (s *outboxShare) add(shard int, token int64, mine, free bool) {
	s.shards++
	switch {
	case mine:
		s.tokens[shard] = token
	case free:
		s.free = append(s.free, shard)
	}
}

// outboxSight is where a session may find something.
type outboxSight struct {
	tokens map[int]int64 // of shards of the session that have messages
	due    bool          // delayed messages are to come
}
