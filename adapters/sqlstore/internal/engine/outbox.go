package engine

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Outbox is the part of an engine that serves the outbox. Each tx is a transaction that the Store began, at READ
// COMMITTED or above, unless a comment says otherwise.
type Outbox struct {
	Writer    Writer
	Listening Listening // nil: the database has no notifications

	Relay Relay // for PostgreSQL, where package pgrelay is in the place of the following parts; nil on other databases

	Holds      Holds
	Leases     Leases
	Settler    Settler
	Upkeep     Upkeep
	Operations Operations
}

// Relay sends the statements of package pgrelay.
type Relay interface {
	RelayStatements() *dialect.PostgresOutbox
	// Send sends steps one after the other.
	Send(ctx context.Context, q Queryer, steps ...pgrelay.Step) error
	// Reading runs f, which only reads through q.
	Reading(ctx context.Context, f func(ctx context.Context, q Queryer) error) error
}

// Listening is for a database that can notify other processes.
type Listening interface {
	// ListenStatements returns what a connection must execute to get the notifications of Writer.Notify.
	ListenStatements(ctx context.Context) ([]string, error)
}

// Writer writes messages in the caller's transaction.
type Writer interface {
	// Enqueue writes msgs. Each has an ID.
	Enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error
	// LockOrderingKey waits for other transactions that have locked key, and locks it until tx ends.
	LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error
	// Notify tells other processes about a commit, if the database can. It returns at once.
	Notify(ctx context.Context)
}

// Holds divides the shards among sessions.
type Holds interface {
	// Renew begins or extends a hold, and reads which shards other sessions hold.
	Renew(ctx context.Context, tx *sql.Tx, by *Hold) (shares.State, error)
	// TakeShards takes up to n shards that no live session holds, and returns them with their tokens.
	TakeShards(ctx context.Context, tx *sql.Tx, by *Hold, n int) (map[int]int64, error)
	// GiveBack releases shards.
	GiveBack(ctx context.Context, tx *sql.Tx, by *Hold, shards []int) error
	// Leave ends a hold.
	Leave(ctx context.Context, tx *sql.Tx, by *Hold) error
}

// Leases finds and reads messages that are due.
type Leases interface {
	// Reading runs f, and repeats it while another connection is writing. f reads through q.
	Reading(ctx context.Context, f func(ctx context.Context, q Queryer) error) error
	// Leasable finds those of the session's shards that have messages. held has the token of each shard that the
	// session knows to hold; other shards may be left out. It fails with driver.ErrLeaseLost if the hold has expired.
	Leasable(ctx context.Context, q Queryer, by *Hold, held map[int]int64) (Leasable, error)
	// MoveDue moves up to limit delayed messages whose time has come into the outbox.
	MoveDue(ctx context.Context, tx *sql.Tx, limit int) error
	// Lease reads the due messages of shards, ordered by Seq, within want.Limit and want.Bytes. tokens has the token of
	// each shard.
	Lease(ctx context.Context, q Queryer, by *Hold, shards []int, tokens map[int]int64,
		want driver.Want) ([]driver.Leased, error)
}

// Settler ends leases.
type Settler interface {
	// Own fails with driver.ErrLeaseLost if the hold has lost one of the shards in tokens. It prevents others from
	// taking them until the transaction of q ends.
	Own(ctx context.Context, q Queryer, by *Hold, tokens map[int]int64) error
	// Settle begins with Own. It does not repeat what an earlier attempt has done.
	Settle(ctx context.Context, tx *sql.Tx, by *Hold, tokens map[int]int64, do *Outcomes) error
}

// Outcomes are the outcomes of leased messages. Each list is ordered by shard and sequence number.
type Outcomes struct {
	Sent, Deferred, Parked []driver.Outcome
	Paused                 []driver.Outcome // returned ones whose keys are held back
	// shards without other leased messages, where messages behind parked ones must be parked too
	Follow []int
}

// TopicRows is how many messages of a shard one Settle holds back because of their topic.
const TopicRows = 1 << 10

// WholeTopics returns the first outcome of each topic of a shard whose messages are held back.
func (o *Outcomes) WholeTopics() (first []driver.Outcome) {
	type topicOfShard struct {
		shard int
		topic string
	}
	seen := map[topicOfShard]bool{}
	for _, out := range o.Deferred {
		if of := (topicOfShard{out.Shard, out.Topic}); out.WholeTopic && !seen[of] {
			seen[of] = true
			first = append(first, out)
		}
	}
	return first
}

// Upkeep does work that is not urgent.
type Upkeep interface {
	// NeedsMaintenance returns those of the held shards that may have messages behind parked ones, and whether Forget
	// has work. held has the token of each shard.
	NeedsMaintenance(ctx context.Context, by *Hold, held map[int]int64) (behind []int, forget bool, err error)
	// Follow parks messages behind parked ones, in shards that have no leased messages.
	Follow(ctx context.Context, tx *sql.Tx, by *Hold, tokens map[int]int64) error
	// Forget deletes rows that are no longer needed: expired holds on keys, expired holds of relays, and sent messages
	// older than KeepSent. It deletes a limited number of each.
	Forget(ctx context.Context, tx *sql.Tx) error
}

// Operations serves operators.
type Operations interface {
	// Repair implements Unpark or Discard of outbox.Operations.
	Repair(ctx context.Context, run Run, seqs []int64, unpark bool) (int, error)
	Parked(ctx context.Context, q Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error)
	StatsStatements(ctx context.Context, q Queryer) (*StatsStatements, error)
}

// StatsStatements are the queries of Stats. Count is a single statement, because each statement reads its own snapshot:
// two statements could both miss a message that moves between them.
type StatsStatements struct {
	Clock, Count, Relays string
	CountArgs            []any
}

// CountedPerShard is how many pending messages of each shard Stats counts. It estimates the rest.
const CountedPerShard = 250

// Limits of one transaction of Upkeep.
const (
	FollowAtOnce = 1000 // how many of a shard's first messages are checked for a parked one before them
	ForgetAtOnce = 2000
)

// Hold is a session's row in txonce_relays.
type Hold struct {
	Owner [16]byte
	Name  string
	TTL   time.Duration
	Begun bool // the row was inserted
}

// Hex returns the owner as hexadecimal digits.
func (h *Hold) Hex() string { return hex.EncodeToString(h.Owner[:]) }

// Leasable says whether a session has something to lease.
type Leasable struct {
	Tokens map[int]int64 // by shard, for the session's shards that have messages
	Due    bool          // delayed messages are due
}
