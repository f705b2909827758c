package pgxstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// A handler sends COMMIT on Tx.Conn while others run beside it. Each other message is complete, with its outbox
// message, or parked as outcome_unknown: handlers of later messages had returned, but their outbox messages were not
// written.
func TestInterleaveLosesNoOutboxMessageToAnotherHandlersCommit(t *testing.T) {
	const messages, culprit = 12, "5"
	db := newOutboxDB(t, testdb.Postgres, 3)
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: db.store, Key: consumer.MessageID, Interleave: true,
		Logger:  slog.New(slog.DiscardHandler),
		Backoff: func(int) time.Duration { return 0 },
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if err := effect(ctx, tx, m.ID); err != nil {
				return err
			}
			if m.ID == culprit {
				_, _ = tx.Conn().Exec(ctx, `COMMIT`)
			}
			return db.store.Enqueue(ctx, tx, outbox.Message{Topic: "done", Payload: []byte(m.ID)})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	msgs := make([]*consumer.Message, messages)
	for i := range msgs {
		msgs[i] = &consumer.Message{
			ID: fmt.Sprint(i), Payload: []byte("x"), Time: time.Now(), Attempt: 1,
			Position: fmt.Sprint(i),
		}
	}
	for i, err := range c.ProcessBatch(t.Context(), msgs) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	parked := map[string]bool{}
	for _, l := range letters {
		parked[l.Record.Key.ID] = l.Cause == observe.CauseUnknown
	}
	count := func(values []string) map[string]int {
		n := map[string]int{}
		for _, v := range values {
			n[v]++
		}
		return n
	}
	effects := count(db.strings(t, `SELECT name FROM effects`))
	published := count(db.strings(t, `SELECT convert_from(payload, 'UTF8') FROM outbox_messages`))
	for _, m := range msgs {
		if !parked[m.ID] && (effects[m.ID] != 1 || published[m.ID] != 1) || effects[m.ID] > 1 {
			t.Errorf("%s: %d effects, %d outbox messages, parked: %v", m.ID, effects[m.ID], published[m.ID],
				parked[m.ID])
		}
	}
	if !parked[culprit] || parked["0"] {
		t.Errorf("parked: %v", parked)
	}
}
