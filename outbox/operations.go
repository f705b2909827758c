package outbox

import (
	"context"
	"time"
)

// Operations are for dashboards and repairs. Stores implement them. They are safe for concurrent use, also while relays
// run.
type Operations interface {
	// Stats may be called every ten seconds: with a million messages it takes tens of milliseconds.
	Stats(ctx context.Context) (Stats, error)

	// Parked lists parked messages by Seq.
	Parked(ctx context.Context, filter ParkedFilter) ([]ParkedMessage, error)

	// Unpark makes parked messages pending again, in their old place within their key and with no attempts counted,
	// together with the messages that wait behind them. It returns how many of seqs were parked; the others are no
	// error. See also UnparkAll.
	Unpark(ctx context.Context, seqs ...int64) (int, error)

	// Discard deletes parked messages, which will never be published. Messages that wait behind them go on. See also
	// DiscardAll.
	Discard(ctx context.Context, seqs ...int64) (int, error)
}

// Stats describe an outbox at one moment.
type Stats struct {
	Pending  int64 // committed, due and not yet confirmed, with those that are leased or held back after a failure
	Delayed  int64 // their NotBefore is in the future
	Parked   int64 // not tried again; with ParkKey also those behind such a message
	Waiting  int64 // behind a parked message of their key, see BlockKey
	HeldKeys int64 // keys that are held back now

	// Alert on these ages. A message is due since its NotBefore, or since it was enqueued, by the database's clock.
	PendingAge time.Duration // the longest that one of Pending has been due; 0: none is pending
	ParkedAge  time.Duration // the longest that one of Parked and Waiting has been due; 0: there are none

	Now time.Time // the database's clock
	// there are so many messages that numbers and Topics are estimates; a topic with very few messages may be missing
	Estimated bool
	Topics    map[string]TopicStats
	Relays    []RelayStats
}

// TopicStats are the numbers of one topic. The fields have the same meaning as in Stats.
type TopicStats struct {
	Pending, Delayed, Parked, Waiting int64
	PendingAge, ParkedAge             time.Duration

	Failing int64  // of Pending: those that failed when they were tried, and those of a topic at fault, see TopicError
	Error   string // of one of Failing; empty: none is failing
}

// RelayStats describe a living relay.
type RelayStats struct {
	Name   string
	Shards int
	Until  time.Time // by the database's clock
}

// ParkedFilter selects the parked messages that meet all conditions. The zero value selects all.
type ParkedFilter struct {
	Topic       string    // empty: any
	OrderingKey string    // empty: any
	Error       string    // a part of ParkedMessage.Error, case-sensitive; empty: any
	Since       time.Time // parked at this time or later, by the database's clock; zero: any
	Until       time.Time // parked before; zero: any
	After       int64     // Seq of the last message of the page before
	Limit       int       // of Parked: 0 is 100; of UnparkAll and DiscardAll: 0 is no limit
}

// ParkedMessage is a parked message, or one that is behind a parked message of its key.
type ParkedMessage struct {
	Stored
	Error    string // the text of the error it was parked with
	Behind   int64  // Seq of the message of its key that failed; 0: this one failed
	Waiting  bool   // it becomes pending when Behind is unparked or discarded, see BlockKey
	ParkedAt time.Time
}
