package driver

import (
	"context"
	"errors"
	"time"
)

// ErrHistoryChanged is the error of Positions.MovePositions if claims may have been lost: since the caller's session
// began, the Store has worked with another server, or with one that was started again.
var ErrHistoryChanged = errors.New("the database may have lost commits: it is another server, or was started again")

// Positions is a Store that remembers in its database how far the messages of a source are handled. It is safe for
// concurrent use.
//
// A database can lose commits: a standby that lacks the latest ones is promoted, or a backup is restored. The source
// keeps its own position, so the lost messages would never come again. A Subscriber therefore commits an offset to its
// source only after the offset is committed here, by the same server as the claims below it. When it starts, or while
// it runs, it compares the two: if the source is ahead, the database went back, and the Subscriber reads again from
// here. Claims that were not lost make that safe.
//
// Without it a Subscriber of Kafka does not notice that the database went back, and messages are lost.
type Positions interface {
	// History returns the number of the history that the Store has seen last. It grows whenever a claim, or a method of
	// Positions, meets a server other than the last one met, or one that was started again since. It says nothing about
	// a backup that was restored without that, which a lower position reveals.
	History() int64

	// ChangePosition locks the row of id, calls change with it, and writes what change returns in the same transaction.
	// now is nil if there is no row. If change returns nil or an error, nothing is written. Position.Updated and the
	// time of a Rewind are the database's. The PositionID that change returns is not used. change may be called again,
	// after a transaction that was rolled back. It must not use the Store. history is the number of the history that
	// the transaction has met.
	ChangePosition(ctx context.Context, id PositionID, change func(now *Position) (*Position, error)) (
		history int64, err error,
	)

	// MovePositions writes all moves in one statement, if the server is that of history and the Store has met no other
	// since. Otherwise it writes nothing, and fails with ErrHistoryChanged. A move is left out if the row is missing,
	// has another Epoch, or a Next that is less than From or more than Next of the move. left has the places in moves of
	// those that were left out, each with the row as it is; nil: it is missing.
	MovePositions(ctx context.Context, history int64, moves []PositionMove) (left map[int]*Position, err error)

	// ListPositions returns the rows of consumer, or all rows if it is empty, by consumer, source and partition. It
	// fails on a server that accepts no writes, because a standby may lack the latest rows.
	ListPositions(ctx context.Context, consumer string) ([]Position, error)
}

// PositionID names a partition as one consumer reads it.
type PositionID struct {
	Consumer  string
	Source    string // all that tells two positions of the consumer apart, such as the cluster, the group and the topic
	Partition int32
}

// SourceAcknowledged is the Source of the rows of a consumer whose source cannot be read again, such as a queue or HTTP.
// Each process has one, and moves it while it commits messages: Next counts them. If the database has lost commits, Log
// has the time that they are from, as two times of RFC 3339 with a slash between them, and Rewind.From less Rewind.Lost
// is how many messages this process had acknowledged of that time at most; 0: unknown.
const SourceAcknowledged = "acknowledged messages"

// SourcePublished is the Source of the rows of relays, whose Consumer is observe.Relays. The rows are like those of
// SourceAcknowledged: Next counts what a process has published and settled.
const SourcePublished = "published messages"

// Position says how far the messages of a partition are handled.
type Position struct {
	PositionID
	Log   string // the identity of the log, such as Kafka's topic ID; empty: unknown
	Next  int64  // all messages before this offset are handled, and their claims are committed
	Epoch int64  // one more for each session that reads the partition, and now and then while Next waits for a message
	Open  bool   // a session reads the partition, or has ended without saying so: its process was killed

	// How many sessions in a row were killed near the same messages, and the offset that these messages are before.
	// From 2 on they are handled alone. When all have been, Tries is 1 and Suspect is further away, because a message
	// behind them may have killed the sessions. Tries 0: the last session was not killed.
	Suspect int64
	Tries   int

	Rewind  Rewind // the last one; its zero value: there was none
	Updated time.Time
}

// Rewind says that messages were read again because the database went back.
type Rewind struct {
	At   time.Time
	From int64 // the offset that the source had
	Lost int64 // the offset that the database had
	To   int64 // where reading began again: Lost, or the first offset that the source still has
}

// PositionMove is a change of a Position by the session with Epoch.
type PositionMove struct {
	PositionID
	Epoch int64
	From  int64 // Next of the row when the session last read or wrote it
	Next  int64
	Close bool // the session ends in order: Open becomes false
}
