package pgxstore

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// lateWrites wait for COMMIT, or for the handler's next statement.
type lateWrites struct {
	statements []*pgx.QueuedQuery // see deferred.go
	deadline   time.Time          // of the handler that queued statements; zero: none
	results    []savedResult      // saved since the latest statement, see result.go
	messages   []outgoing         // enqueued since the newest savepoint
	sync       string             // the synchronous_commit for COMMIT; empty: it was not changed
	wakes      []wakeUp           // notifications to send after COMMIT
}

// wakeUp is a notification for the relays of a Store.
type wakeUp struct {
	writer *writer
	shards []int16 // the shards that get messages; nil: any shard may
}
