package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// When ctx ends, the driver closes the connection, and the server goes on with the handler's statement. The Store
// cannot find out whether the transaction was committed until the statement ends. The attempt counts all the same.
func TestMySQLASlowStatementCountsAsAnAttempt(t *testing.T) {
	t.Parallel()
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	runs := 0
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "slow", Store: s, Key: consumer.MessageID, MaxAttempts: 2, HandlerTimeout: 100 * time.Millisecond,
		Handle: func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			runs++
			var n int
			// longer than the Store waits for the end of the transaction
			return tx.QueryRowContext(ctx, `SELECT SLEEP(4)`).Scan(&n)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for attempt := 1; attempt <= 2; attempt++ {
		err := c.ProcessBatch(t.Context(), []*consumer.Message{{ID: "1", Topic: "orders", Attempt: attempt}})[0]
		retry, retries := errors.AsType[*consumer.RetryError](err)
		if last := attempt == 2; last != (err == nil) || !last && (!retries || retry.Held) {
			t.Errorf("attempt %d: %v; want a counted failure, and then a parked message", attempt, err)
		}
	}
	letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 1 || letters[0].Cause != observe.CauseExhausted || runs != 2 {
		t.Errorf("letters %+v, %v after %d runs; want one that is exhausted after 2", letters, err, runs)
	}
}
