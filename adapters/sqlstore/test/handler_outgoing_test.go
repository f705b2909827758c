package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// warning is what was logged last.
type warning struct{ atomic.Value }

func (w *warning) Write(text []byte) (int, error) {
	w.Store(string(text))
	return len(text), nil
}

// The runs of HandlerTest.Outgoing that are rolled back leave no claim, message or dead letter, and no warning.
func TestOutgoingRunsLeaveNothing(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		var warned warning
		logger := slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn}))
		messages := func(ctx context.Context, q interface {
			QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		},
		) (ids []string, err error) {
			rows, err := q.QueryContext(ctx, `SELECT id FROM outbox_messages`)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				if err := rows.Scan(&id); err != nil {
					return nil, err
				}
				ids = append(ids, id)
			}
			return ids, rows.Err()
		}
		consumertest.TestHandler(t, consumertest.HandlerTest[*sql.Tx]{
			Store: n.Store,
			New: func(s dedup.Store[*sql.Tx]) (*consumer.Consumer[*sql.Tx], error) {
				return consumer.New(consumer.Config[*sql.Tx]{
					Name: "billing", Store: s, Key: consumer.MessageID, MaxAttempts: 1, Logger: logger,
					Handle: func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
						return n.Enqueue(ctx, tx, outbox.Message{Topic: "charges", Payload: m.Payload})
					},
				})
			},
			Message: func(n int) *consumer.Message {
				return &consumer.Message{ID: fmt.Sprint("order-", n), Payload: []byte("x")}
			},
			Effects: func(ctx context.Context) (int, error) {
				ids, err := messages(ctx, n.db)
				warned.Store("") // of earlier cases, which crash
				return len(ids), err
			},
			Outgoing: func(ctx context.Context, tx *sql.Tx) ([]string, error) {
				if text := warned.Load(); text != "" {
					t.Errorf("a run is logged: %s", text)
				}
				return messages(ctx, tx)
			},
		})
		for table, want := range map[string]int{"processed_messages": 6, "outbox_messages": 6, "dead_letters": 0} {
			var got int
			if err := n.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&got); err != nil || got != want {
				t.Errorf("%d rows in %s, want %d (%v)", got, table, want, err)
			}
		}
	})
}
