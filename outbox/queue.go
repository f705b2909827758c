package outbox

import (
	"context"
	"errors"
	"time"
)

// ErrLeaseLost says that the session's hold ran out, or a shard went to another relay. Nothing was changed; whoever holds the shard
// now publishes what is pending, so that what this session has published already may be published twice.
var ErrLeaseLost = errors.New("outbox: lease lost")

// Queue is the relay's side of an outbox. It is safe for concurrent use.
type Queue interface {
	// Open begins a session under a fresh random owner, so that nothing of an earlier one counts. It holds nothing until
	// the first Renew. ctx is that of Open alone. Where the tables are missing, it or Renew fails with ErrSchema.
	Open(ctx context.Context, opts SessionOptions) (Session, error)
}

// SessionOptions describe a relay to its Queue.
type SessionOptions struct {
	Name string        // for people; sessions of one name are still several
	TTL  time.Duration // how long a hold lasts after each Renew, by the database's clock
}

// Session is one relay's hold on its share of the outbox. Its methods are safe for concurrent use. After ErrLeaseLost of
// Renew it is over: Close it and open another.
type Session interface {
	// Renew extends the hold by TTL. It takes free shards up to a fair share, and those that have stayed free since the
	// Renew before. It gives back what is above the fair share among the sessions that have renewed at least twice: at once
	// where nothing is leased, else when Settle has ended the leases; until then Lease leaves these shards alone. So a
	// session that joins busy ones has its share after three of its Renews, and one that dies at its start costs the others
	// nothing. The first Renew begins the hold. When the hold has run out, it fails with ErrLeaseLost, even if no other
	// relay has taken anything yet.
	Renew(ctx context.Context) (Hold, error)

	// Lease returns messages that are due, of shards that this session holds and that have nothing leased: those of one
	// key in their order, and none that stands behind a held-back message of its key. nil: nothing is due. Until they are
	// settled, further calls leave the shards of what was returned alone.
	Lease(ctx context.Context, want Want) ([]Leased, error)

	// Settle ends leases as outcomes say, all in one transaction. If any of their tokens is stale it fails with
	// ErrLeaseLost and changes nothing. After another error nothing or everything has happened: settle them again.
	Settle(ctx context.Context, outcomes []Outcome) error

	// Close gives back what is held, so that others need not wait for its end, and ends the session.
	Close(ctx context.Context) error
}

// Waker is a Session that can tell when Lease may find something: see also Want.Notified. It is a hint, may be missed, and needs
// polling beneath.
type Waker interface {
	Wake() <-chan struct{} // always the same; a value for any number of commits
}

// Maintainer is a Session with upkeep to do: forgetting sent messages, clearing up after dead relays. The
// relay calls it about once a second. Each call is bounded, and does nothing when nothing is due.
type Maintainer interface {
	Maintain(ctx context.Context) error
}

// Hold is what a session holds after Renew.
type Hold struct {
	Until       time.Time // by this process's monotonic clock, read before the request: the hold lasts at least until then
	Shards      int       // held by this session
	TotalShards int       // in all
	Relays      int       // sessions alive, this one among them
	SameName    int       // other sessions alive under the same name
}

// Want bounds what Lease returns.
type Want struct {
	Limit  int // messages
	Bytes  int // of payloads, keys and headers; a single larger message is leased alone. 0: no bound
	Groups int // look at one part in Part of the held shards, the next with each call, so that others can be leased meanwhile; 0: 1

	// Notified allows a Session that is a Waker to look only at shards of which its wake-ups have told, where it knows them. A shard that
	// cannot be looked at now, because something of it is leased, stays told of. false: look everywhere.
	Notified bool
}

// Leased is a message that one session holds until it is settled.
type Leased struct {
	Message
	Seq      int64 // grows in the order of transactions that exclude each other; unique in the outbox
	Shard    int
	Token    int64     // fencing token of the shard, which each takeover raises
	Attempts int       // publications that failed and were counted
	Enqueued time.Time // by the database's clock

	// Unreadable says why what is stored cannot be turned back into what was enqueued, as when another program has written
	// the row. The relay parks such a message, and never publishes it. nil: it can.
	Unreadable error
}

// Verdict is what became of a leased message.
type Verdict int

// Verdicts. Whatever is neither Sent nor Parked stays pending.
const (
	Returned Verdict = iota // not tried, or unknown: due again at once
	Sent                    // confirmed by the broker
	Deferred                // failed; it and the later messages of its key are held back for Delay
	Parked                  // given up on
)

// Outcome ends the lease of one message.
type Outcome struct {
	Leased
	Verdict    Verdict
	Cause      error         // of Deferred and Parked
	Delay      time.Duration // of Deferred
	Uncounted  bool          // of Deferred: the broker was at fault; the attempt is not counted
	ParkPolicy ParkPolicy    // of Parked
}

// ParkPolicy says what becomes of the later messages of a key of which one is parked, present ones and future ones.
type ParkPolicy int

// The zero value keeps the promise without losing sight of anything.
const (
	BlockKey    ParkPolicy = iota // until it is unparked or discarded; then they go on by themselves
	ParkKey                       // are parked behind it, each to be unparked or discarded
	SkipMessage                   // are published: the key's order is given up for this message
)
