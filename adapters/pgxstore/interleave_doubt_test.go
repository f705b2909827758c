package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// Handler 1 commits the transaction of its batch. Handler 2 has returned by then, and its outbox message is not written
// yet. Its claim is committed, so message 2 is parked: as a duplicate it would lose the outbox message.
func TestInterleaveWhenAHandlerCommits(t *testing.T) {
	for name, test := range map[string]struct {
		fails  bool // handler 3 fails before handler 1 returns, so nobody knows which handler has committed
		parked []string
	}{
		"and returns":                     {false, []string{"1", "2", "3"}},
		"and another one fails meanwhile": {true, []string{"0", "1", "2", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres, 4)
			returned, committed := make(chan struct{}), make(chan struct{})
			runs := make(chan string, 100)
			c := newConsumer(t, db.store, consumer.Config[pgx.Tx]{Name: "billing", Interleave: true, Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				runs <- m.ID
				if err := effect(ctx, tx, m.ID); err != nil {
					return err
				}
				switch m.ID {
				case "1":
					<-returned
					if _, err := tx.Conn().Exec(ctx, `COMMIT`); err != nil {
						return err
					}
					close(committed)
					if test.fails {
						<-ctx.Done()
					}
					return ctx.Err()
				case "2":
					defer close(returned)
				case "3":
					if test.fails {
						<-committed
						return errors.New("handler 3")
					}
				}
				return db.store.Enqueue(ctx, tx, outbox.Message{ID: "of " + m.ID, Topic: "t", Payload: []byte("x")})
			}})
			var msgs []*consumer.Message
			for i := range 4 {
				msgs = append(msgs, &consumer.Message{ID: fmt.Sprint(i), Payload: []byte("x")})
			}
			if errs := c.ProcessBatch(t.Context(), msgs); !slices.Equal(errs, make([]error, len(msgs))) {
				t.Error(errs)
			}
			parked := db.strings(t, `SELECT message_id FROM dead_letters WHERE cause = 'outcome_unknown' ORDER BY 1`)
			if !slices.Equal(parked, test.parked) || len(runs) != len(msgs) {
				t.Errorf("parked %q after %d runs", parked, len(runs))
			}
			db.want(t, "of 0")
		})
	}
}
