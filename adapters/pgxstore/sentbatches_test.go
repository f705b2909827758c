package pgxstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A statement that is queued on a batch after it was sent never runs, so its message must not be answered nil: in no
// mode, and whatever the handler does with the results.
func TestStatementQueuedOnASentBatch(t *testing.T) {
	t.Parallel()
	sends := func(ctx context.Context, tx pgx.Tx, m *consumer.Message, finish func(r pgx.BatchResults) error) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT 1`).Exec(func(pgconn.CommandTag) error { b.Queue(insertEffect, m.ID); return nil })
		return finish(tx.SendBatch(ctx, b))
	}
	for name, handle := range map[string]consumer.Handler[pgx.Tx]{
		"Close": func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return sends(ctx, tx, m, pgx.BatchResults.Close)
		},
		"Close ignored": func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return sends(ctx, tx, m, func(r pgx.BatchResults) error { _ = r.Close(); return nil })
		},
		"nested": func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return sends(ctx, tx, m, pgx.BatchResults.Close) })
		},
		"queued by the handler": func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			r := tx.SendBatch(ctx, b)
			b.Queue(insertEffect, m.ID)
			return r.Close()
		},
	} {
		for _, interleave := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/interleave %v", name, interleave), func(t *testing.T) {
				db := newOutboxDB(t, testdb.Postgres18, 4)
				c, err := consumer.New(consumer.Config[pgx.Tx]{
					Name: "billing", Store: db.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
					MaxAttempts: 1, Interleave: interleave,
					Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
						if m.ID == "late 0001" {
							return handle(ctx, tx, m)
						}
						b := &pgx.Batch{}
						b.Queue(insertEffect, m.ID)
						return tx.SendBatch(ctx, b).Close()
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				wantLate(t, db, c, 2)
			})
		}
	}
}

// A batch that is sent again runs again, with what was queued meanwhile.
func TestBatchThatIsSentAgain(t *testing.T) {
	t.Parallel()
	db := newOutboxDB(t, testdb.Postgres18, 4)
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: db.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		MaxAttempts: 1,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			b := &pgx.Batch{}
			for i := range 2 {
				b.Queue(insertEffect, fmt.Sprintf("%s %d", m.ID, i))
				if err := tx.SendBatch(ctx, b).Close(); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Process(t.Context(), queued("again", 1)[0]); err != nil {
		t.Fatal(err)
	}
	if n := effects(t, db); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}

func effects(t *testing.T, db *outboxDB) (n int) {
	t.Helper()
	if err := db.pool.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wantLate delivers three messages, of which the second queues too late, and wants that one parked and the others
// committed.
func wantLate(t *testing.T, db *outboxDB, c *consumer.Consumer[pgx.Tx], want int) {
	t.Helper()
	batch := queued("late", 3)
	for round := 0; len(batch) > 0 && round < 50; round++ {
		var again []*consumer.Message
		for i, err := range c.ProcessBatch(t.Context(), batch) {
			if err != nil {
				batch[i].Attempt++
				again = append(again, batch[i])
			}
		}
		batch = again
		<-time.After(time.Millisecond)
	}
	letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(letters) != 1 || letters[0].Record.Key.ID != "late 0001" || !strings.Contains(letters[0].Error,
		"INSERT INTO effects") {
		t.Errorf("letters %+v", letters)
	}
	if n := effects(t, db); n != want || len(batch) > 0 {
		t.Errorf("%d effects, want %d; %d messages are not answered", n, want, len(batch))
	}
}
