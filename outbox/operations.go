package outbox

import (
	"context"
	"time"
)

// Operations are for people and their dashboards. Stores have them. They are safe for concurrent use, also with relays.
type Operations interface {
	// Stats is cheap enough to be called every ten seconds.
	Stats(ctx context.Context) (Stats, error)

	// Parked lists parked messages by Seq.
	Parked(ctx context.Context, filter ParkedFilter) ([]ParkedMessage, error)

	// Unpark makes parked messages pending again, in their old place within their key, with no attempts counted, and what
	// waits behind them with them. It returns how many of seqs were parked; the others are not an error.
	Unpark(ctx context.Context, seqs ...int64) (int, error)

	// Discard deletes parked messages, which will never be published; what waits behind them goes on.
	Discard(ctx context.Context, seqs ...int64) (int, error)
}

// Stats describe an outbox at a moment.
type Stats struct {
	Pending   int64     // committed and not yet confirmed; with those that are deferred, without Delayed and Waiting
	Delayed   int64     // whose NotBefore has not come
	Parked    int64     // given up on, or parked behind one that was
	Waiting   int64     // behind a parked message of their key, see FollowersWait
	HeldKeys  int64     // keys that are held back at the moment
	Oldest    time.Time // when the oldest pending message was enqueued, by the database's clock; zero: none is pending
	Now       time.Time // the database's clock: Now.Sub(Oldest) is the age to alarm on
	SlotLag   int64     // of an outbox in the write-ahead log: bytes of it that the server keeps for what is not published, in all databases' traffic; Pending and Oldest leave out what is only there
	Estimated bool      // Pending is so large that it and Topics were estimated
	Topics    map[string]TopicStats
	Relays    []RelayStats
}

// TopicStats are the part of one topic.
type TopicStats struct {
	Pending, Delayed, Parked, Waiting int64
}

// RelayStats describe a living relay.
type RelayStats struct {
	Name   string
	Shards int
	Until  time.Time // by the database's clock
}

// ParkedFilter selects parked messages. The zero value selects the first 100.
type ParkedFilter struct {
	Topic string // empty: all
	Key   string // empty: all
	After int64  // Seq of the last one seen
	Limit int    // 0: 100
}

// ParkedMessage is a message that was given up on, or that stands behind one.
type ParkedMessage struct {
	Leased          // without Token
	Cause    string // why
	Behind   int64  // Seq of the message of its key that was given up on; 0: this one was
	Waiting  bool   // it goes on by itself when Behind does, see FollowersWait
	ParkedAt time.Time
}
