package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/txonce/txonce/consumer"
)

// A replay is one handler's transaction, so it may leave a temporary table. Then the letter is removed in the same transaction.
func TestAReplayMayLeaveATemporaryTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := alone(db)
		broken := true
		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "suite", Store: s, Key: consumer.MessageID,
			Handle: func(ctx context.Context, tx *sql.Tx, _ *consumer.Message) error {
				if broken {
					return consumer.Permanent(errors.New("the deployment is broken"))
				}
				_, err := tx.ExecContext(ctx, `CREATE TEMPORARY TABLE scratch (n int)`)
				if err == nil {
					_, err = tx.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('x')`)
				}
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if err := c.Process(t.Context(), &consumer.Message{ID: "a", Position: "suite/a", Payload: []byte("a"), Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		broken = false
		letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
		if err != nil || len(letters) != 1 {
			t.Fatalf("%d letters, %v", len(letters), err)
		}
		if ran, err := c.Replay(t.Context(), letters[0], consumer.Replay{}); !ran || err != nil {
			t.Errorf("ran %v, %v", ran, err)
		}
		if left, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{}); err != nil || len(left) != 0 {
			t.Errorf("%d letters are left, %v", len(left), err)
		}
		if n := db.count(t, `SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}
