package ops

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// Store is what a database answers and does for operators. pgxstore.Store and sqlstore.Store return one with their
// method Operator. It needs no consumer, so a command line with a DSN has one too. It is safe for concurrent use, also
// while workers run.
type Store interface {
	StatusReader
	LetterKeeper
	Prober
	Requester

	// Keys answers questions about business keys, their consumers and their letters.
	Keys() Keys

	// Outbox has the operations on the outbox.
	Outbox() outbox.Operations
}

// StatusReader describes the database.
type StatusReader interface {
	// Status is cheap enough to be called every ten seconds. It does not scan processed_messages. Its parts are read
	// one after the other.
	Status(ctx context.Context) (Status, error)
}

// Status is the state of a database at one moment. All times are by the database's clock.
type Status struct {
	Now       time.Time
	Schema    int              // the version of txonce's tables
	Consumers []ConsumerStatus // those that have registered, or that have dead letters, by name
	Sweep     SweepStatus
	Outbox    outbox.Stats

	// Old are up to five transactions that have been open for more than OldTransaction, the oldest first: they keep
	// their keys, and a worker that is frozen may be the cause. Only on PostgreSQL, and only those that the user may
	// see.
	Old []Holder
}

// OldTransaction is how long a transaction is open before Status lists it.
const OldTransaction = time.Minute

// ConsumerStatus is the state of one consumer.
type ConsumerStatus struct {
	Name    string
	Windows []Window
	Sources []Source
	// how far its sources are handled, by source; empty: its Subscribers keep no positions in the database
	Positions []SourcePositions
	Horizon   time.Time     // a message of this time or an earlier one without claim is unprovable; zero: none is
	Letters   []LetterCount // by cause; no cause is there twice
	Waiting   int           // dead letters that are requested to be replayed and wait for RunReplays
}

// Window is a window that a consumer has run with.
type Window struct {
	Window              time.Duration
	FirstRun, UsedUntil time.Time // UsedUntil is up to 24 hours ahead of the last claim
}

// Source is where a consumer's messages come from, such as "sqs queue orders".
type Source struct {
	Name     string
	FirstRun time.Time
}

// SourcePositions is how far the messages of one source are handled: see driver.Positions. If the source cannot be read
// again, as a queue or HTTP requests, Source is driver.SourceAcknowledged, and the partitions are processes: then Missing
// counts the messages that were acknowledged and may be lost, as far as it is known.
type SourcePositions struct {
	Source     string // such as "kafka CLUSTER, group billing, topic orders"
	Partitions int
	Oldest     time.Time // of each partition's last change, the oldest; idle partitions change only when a session begins

	// Suspects counts the partitions where two or more sessions in a row were killed near one message. Suspect is the
	// one with the most Tries; nil: there is none. It stays until a session begins behind these messages.
	Suspects int
	Suspect  *Suspect

	// Rewound counts the partitions that were read again because the database went back. Again and Missing are the sums
	// of what Rewind says about the last time of each partition.
	Rewound        int
	Again, Missing int64
	Rewind         *Rewind // the latest one of all partitions; nil: there was none
}

// Suspect is where sessions were killed.
type Suspect struct {
	Partition int32
	Offset    int64 // the messages that they had are before it
	Tries     int   // sessions in a row that were killed there
}

// Rewind says that a partition was read again because the database went back.
type Rewind struct {
	Partition int32
	At        time.Time
	From      int64 // the offset that the group had
	Lost      int64 // the offset that the database had
	To        int64 // where reading began again: Lost, or the first offset that the source still had

	// What was committed between them is lost, if the source cannot be read again. Otherwise they are zero.
	LostFrom, LostUntil time.Time
}

// Again returns about how many messages were read again.
func (r Rewind) Again() int64 { return max(0, r.From-r.To) }

// Missing returns about how many messages should have been read again, but the source had deleted them. Their effects
// may be lost.
func (r Rewind) Missing() int64 { return max(0, r.To-r.Lost) }

// MaxCount is up to where dead letters are counted.
const MaxCount = 10_000

// LetterCount counts the dead letters of one consumer and cause. Of a consumer with more than MaxCount letters only the
// newest are counted, so Oldest is the oldest of those, and causes that only older letters have are missing.
type LetterCount struct {
	Cause          observe.Cause
	Count          int  // at most MaxCount+1
	Capped         bool // there are more than MaxCount
	Oldest, Latest time.Time
}

// SweepStatus is the state of the deletion of expired keys.
type SweepStatus struct {
	// the latest expiry of all deleted keys, or a later time that an operator has set; zero: neither
	Forgotten  time.Time
	Owner      string // of the lease; empty: no sweeper has run
	LeaseUntil time.Time
	LastPass   time.Time     // when the latest pass over the whole table ended; zero: none has
	Lag        time.Duration // since LastPass; 0: no pass has ended
	Keys       int64         // rows of processed_messages, estimated; negative: unknown
}

// LetterKeeper reads and discards dead letters.
type LetterKeeper interface {
	// DeadLetters lists dead letters, newest first. See driver.ParkingLot. Where no index selects the letters, it reads
	// all of them until it has found filter.Limit: see Searcher.Reach.
	DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)

	// DiscardLetter does what consumer.Consumer.Discard does, and records it as a result of the action, all in one
	// transaction.
	DiscardLetter(ctx context.Context, action ActionID, letter consumer.DeadLetter) error
}

// Prober finds out how the database would answer a claim.
type Prober interface {
	// Probe claims rec in a transaction of its own and rolls back. It waits for another transaction that holds the key
	// for about a second. It leaves nothing in the database: it does not register a window either.
	Probe(ctx context.Context, rec dedup.Record) (Probe, error)
}

// Probe is the answer of a Prober.
type Probe struct {
	Claim    dedup.Claim // zero if InFlight is true
	InFlight bool        // another transaction holds the key
	Holder   *Holder     // that transaction; nil: the database does not tell

	// WholeDatabase says that InFlight is true because another transaction holds the whole database, as on SQLite. It
	// may be about another key.
	WholeDatabase bool
}

// Holder is the transaction that holds a key.
type Holder struct {
	PID    int64         // of the server's process, for pg_terminate_backend; on MySQL the ID for KILL
	Since  time.Time     // when its transaction began, by the database's clock
	Age    time.Duration // since then
	State  string        // such as "active" or "idle in transaction"; empty: unknown
	Client string        // its address and the name of its application; empty: unknown
}

// Searcher answers what a search for dead letters and a dry run of their replay need to know.
type Searcher interface {
	// Consumers returns Status.Consumers without Letters, Waiting and Positions. It counts nothing, so it is cheap enough for each
	// page.
	Consumers(ctx context.Context) ([]ConsumerStatus, error)

	// Reach limits a search. When DeadLetters would read more than about n letters to find those that filter chooses,
	// Reach returns the time to use as filter.Since, so that it reads the newest n. A later search goes on with
	// filter.After, a cursor with this time as its First and no ID. Zero: DeadLetters reads fewer than n, an index
	// finds the letters, or filter has only a consumer and a cause: that comparison is fast enough without a limit, and
	// the number of letters is then exact.
	Reach(ctx context.Context, filter consumer.DeadLetterFilter, n int) (since time.Time, err error)

	// Waiting returns which letters are marked by an open request to replay or repair them.
	Waiting(ctx context.Context, letters []consumer.DeadLetterID) (map[consumer.DeadLetterID]bool, error)
}

// Keys finds business keys, their claims, and what their handlers have enqueued.
type Keys interface {
	Searcher

	// KeyOf returns the business key that has this hash, of a claim or of a dead letter. found is false if there is
	// none. A claim that was made with Config.Compact does not tell its key.
	KeyOf(ctx context.Context, hash dedup.KeyHash) (key dedup.Key, found bool, err error)

	// EachKey calls f for the business keys of all dead letters and then for those of all claims, until f returns
	// false. It reads the claims in parts of a few thousand, so it holds no snapshot for long. A million keys take some
	// seconds.
	EachKey(ctx context.Context, f func(key dedup.Key) (more bool)) error

	// Claimed returns the fingerprints of the committed claims of keys. A key without one is missing in the answer,
	// also while a transaction claims it.
	Claimed(ctx context.Context, keys []dedup.Key) (map[dedup.Key]dedup.Fingerprint, error)

	// Discards lists the records of dead letters with key that operators have discarded, latest first, at most 100.
	// consumer.Consumer.Discard records nothing.
	Discards(ctx context.Context, key dedup.Key) ([]Discarded, error)

	// Outgoing counts the messages that the handler of the message with key has enqueued. There is no index for it: it
	// reads the tables of the outbox, at a million messages for about a second for each topic. It does not fill in
	// Outgoing.Discards.
	Outgoing(ctx context.Context, key dedup.Key) (Outgoing, error)
}

// Discarded is the record of one discarded dead letter. It is written in the transaction that removes the letter.
type Discarded struct {
	Action      ActionID
	Letter      consumer.DeadLetterID
	Who, Reason string
	At          time.Time // by the database's clock

	// Claimed says that the discard has claimed the key: no transaction had processed it, and a redelivery is a
	// duplicate since.
	Claimed bool
}

// Outgoing counts the messages that the handler of one message has enqueued, as far as their IDs are derived from its
// key: see driver.WithScope. Messages with an ID of their own, and those of httpidem, are not found. Neither is a
// message after the first thousand of its topic that are gone.
type Outgoing struct {
	Pending int // committed, due and not yet confirmed
	Delayed int // their NotBefore is in the future
	Parked  int // parked, or waiting behind a parked message

	// At least so many have been confirmed, or discarded if Discards is not 0. When nothing is pending, delayed or
	// parked, all are; but then their number is only known if confirmed messages are kept: see Config.Outbox.KeepSent.
	Confirmed int

	// Itself is where a message is whose topic is the key's consumer and whose ID is the key: "pending", "delayed" or
	// "parked". A call of package calls is such a message. Empty: there is none, or it was sent.
	Itself string

	// Discards is how many times operators have discarded parked messages since the message was processed, or at all if
	// it is unknown when that was. It may have been other messages. Operations.Discard records nothing by itself.
	Discards int
}

// Requester records what operators do.
type Requester interface {
	// Request records an action, and marks its dead letters in the same transaction if Kind is Replay. If it fails and
	// the Action has an ID, the action is requested, and only its numbers could not be read.
	Request(ctx context.Context, r Request) (Action, error)

	// End ends an action. The dead letters that are still marked are dead letters as before. Ending it again changes
	// nothing.
	End(ctx context.Context, id ActionID, note string) (Action, error)

	// Actions lists actions, newest first.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)

	// Results lists what happened to the dead letters of an action, latest first.
	Results(ctx context.Context, filter ResultFilter) ([]Result, error)
}
