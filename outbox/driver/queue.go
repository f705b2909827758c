package driver

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Errors of Queues and Sessions.
var (
	// ErrSchema says that the outbox's tables are missing, or have a version that this program does not support. Queues
	// wrap it.
	ErrSchema = errors.New("outbox: the database's schema does not fit")

	// ErrSettings says that a setting of the database, the role or the DSN breaks the relay's statements. The error
	// names it. Queues wrap it.
	ErrSettings = errors.New("outbox: settings of the database, the role or the DSN")

	// ErrLeaseLost says that the session's hold expired, or that another relay took a shard. Nothing was changed. The
	// relay that holds the shard now publishes its pending messages, so a message that this session has published may
	// be published twice.
	ErrLeaseLost = errors.New("outbox: lease lost")

	// ErrRefused says that the database refuses a value or a row of an outcome, and will refuse it again. Settle has
	// changed nothing. The relay settles the outcomes one by one, and sets aside the one that is refused.
	ErrRefused = errors.New("outbox: the database refuses to store this")
)

// Queue is the relay's side of an outbox. It is safe for concurrent use.
type Queue interface {
	// Open opens a session under a fresh random owner, so that nothing of an earlier session applies to it. The session
	// holds nothing until the first Renew. ctx limits Open alone. When the tables are missing, Open or Renew fails with
	// ErrSchema. Open fails with ErrSettings when settings break its statements.
	Open(ctx context.Context, opts SessionOptions) (Session, error)
}

// SessionOptions describe a relay to its Queue.
type SessionOptions struct {
	Name string        // for Stats and logs; several sessions may have the same one
	TTL  time.Duration // how long a hold lasts after each Renew, by the database's clock
}

// Session holds shards of the outbox for one relay. Its methods are safe for concurrent use. After Renew returned
// ErrLeaseLost, Close the session and open another.
type Session interface {
	// Renew extends the hold by TTL. The first Renew begins the hold. When the hold has expired, Renew fails with
	// ErrLeaseLost, even if no other relay has taken a shard yet.
	//
	// Renew takes free shards up to a fair share. Beyond it, Renew takes only shards that were also free at the
	// previous Renew. It gives back shards above the fair share among the sessions that have renewed at least twice:
	// those without leased messages at once, the others when Settle has ended their leases; until then Lease skips
	// these shards. So a session that joins busy ones has its share after three of its Renews, and a session that dies
	// at its start takes nothing from the others.
	Renew(ctx context.Context) (Hold, error)

	// Lease returns due messages of shards that this session holds and that have no leased messages: those of one key
	// in their order, and none behind a message of its key that is held back. nil: nothing is due. Further calls skip
	// the shards of the returned messages until they are settled. After an error nothing is leased: the messages that
	// the answer would have had are found by the next call, and no shard waits for a Settle that nobody can send.
	Lease(ctx context.Context, want Want) ([]Leased, error)

	// Settle ends leases as outcomes say, all in one transaction. When one of their tokens is outdated, it fails with
	// ErrLeaseLost and changes nothing. After ErrRefused nothing has changed. Any other error means that nothing or
	// everything has happened: call Settle with them again.
	Settle(ctx context.Context, outcomes []Outcome) error

	// Close gives back all shards, so that other relays need not wait for the hold to expire, and ends the session.
	Close(ctx context.Context) error
}

// Waker is a Session that notifies of commits: Lease may then find messages. See also Want.Notified. A notification is
// a hint and may be missed: callers poll as well.
type Waker interface {
	Wake() <-chan struct{} // always the same channel; one value may mean any number of commits
}

// Maintainer is a Session with maintenance to do: deleting sent messages, cleaning up after dead relays. The relay
// calls Maintain about once a second. Each call is short, and does nothing when there is nothing to do.
type Maintainer interface {
	Maintain(ctx context.Context) error
}

// Hold is what a session holds after Renew.
type Hold struct {
	// by this process's monotonic clock, read before the request: the hold lasts at least until then
	Until       time.Time
	Shards      int // held by this session
	TotalShards int // shards of the outbox
	Relays      int // sessions alive, with this one
	SameName    int // other sessions alive under the same name

	// Announced says that the session is a Waker which is notified of the commits of all processes at the moment. Polls
	// without Want.Notified then find little: messages of processes that died between a commit and its notification,
	// and retries.
	Announced bool
}

// Want limits what Lease returns.
type Want struct {
	Limit int // messages
	Bytes int // of payloads, keys and headers; a single larger message is leased alone. 0: no limit
	// scan one of this many groups of shards per call, round robin, so that other workers can lease the others; 0 means
	// 1
	Groups int

	// Notified allows a Waker to scan only those shards that notifications were about, where it knows them. A
	// notification about a shard that cannot be scanned now, because some of its messages are leased, is kept. false:
	// scan all shards.
	Notified bool
}

// Leased is a message that one session holds until it settles it.
type Leased struct {
	outbox.Stored
	Token int64 // fencing token of the shard, which grows when another relay takes the shard
}

// Verdict is the result of a leased message.
type Verdict int

// Verdicts. A message that is neither Sent nor Parked stays pending.
const (
	Returned Verdict = iota // not tried, or unknown: due again at once, or after Delay
	Sent                    // confirmed by the broker
	Deferred                // failed; it and the later messages of its key are held back for Delay
	Parked                  // not tried again until outbox.Operations.Unpark
)

// Outcome ends the lease of one message.
type Outcome struct {
	Leased
	Verdict Verdict
	Err     error // of Deferred and Parked
	// of Deferred; of Returned with a Key: nothing is recorded, but the key is held back, so that Lease finds what is
	// behind it
	Delay time.Duration
	// of Deferred: the attempt is not counted, because the broker or the topic was at fault
	BrokerFault bool
	// of Deferred: the messages of its Topic in its Shard wait too, a thousand or so, without being leased for that
	WholeTopic bool
	ParkPolicy outbox.ParkPolicy // of Parked
}
