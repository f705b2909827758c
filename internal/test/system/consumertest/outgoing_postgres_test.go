package consumertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// On PostgreSQL, HandlerTest.Outgoing finds handlers that send other messages when they run again.
func TestOutgoingMessages(t *testing.T) {
	lines := []string{"one", "two", "three"}
	var runs atomic.Int64
	for _, test := range []struct {
		name     string
		outgoing func(m *consumer.Message) []outbox.Message
		says     string // "": the handler is right
	}{
		{"derived IDs", func(m *consumer.Message) (all []outbox.Message) {
			for _, name := range lines {
				all = append(all, outbox.Message{Topic: "lines", Payload: []byte(name)})
			}
			return all
		}, ""},
		{"random IDs", func(m *consumer.Message) []outbox.Message {
			return []outbox.Message{{ID: rand.Text(), Topic: "charges", Payload: m.Payload}}
		}, "two runs of the handler for one message enqueue different messages"},
		{"another order in each run, as of a map", func(m *consumer.Message) (all []outbox.Message) {
			for i := range lines {
				name := lines[(i+int(runs.Load()))%len(lines)]
				all = append(all, outbox.Message{Topic: "lines", Payload: []byte(name)})
			}
			runs.Add(1)
			return all
		}, "enqueue in a fixed order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres18(t)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			store, err := pgxstore.New(pgxstore.Config{Pool: pool})
			if err := errors.Join(err, pgxstore.Migrate(t.Context(), pool, "")); err != nil {
				t.Fatal(err)
			}
			if !isChild() {
				failed := failedCases(t)
				said := failed["same outgoing messages"]
				if delete(failed, "same outgoing messages"); len(failed) > 0 {
					t.Errorf("other cases fail: %v", failed)
				}
				if !strings.Contains(said, test.says) || test.says == "" && said != "" {
					t.Errorf("it says %q, want %q", said, test.says)
				}
				return
			}
			if _, err := pool.Exec(t.Context(), `CREATE TABLE charges (id text)`); err != nil {
				t.Fatal(err)
			}
			consumertest.TestHandler(t, consumertest.HandlerTest[pgx.Tx]{
				Store: store,
				New: func(s dedup.Store[pgx.Tx]) (*consumer.Consumer[pgx.Tx], error) {
					return consumer.New(consumer.Config[pgx.Tx]{
						Name: "billing", Store: s, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
						Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
							if _, err := tx.Exec(ctx, `INSERT INTO charges VALUES ($1)`, m.ID); err != nil {
								return err
							}
							for _, message := range test.outgoing(m) {
								if err := store.Enqueue(ctx, tx, message); err != nil {
									return err
								}
							}
							return nil
						},
					})
				},
				Message: func(n int) *consumer.Message { return &consumer.Message{ID: fmt.Sprint("order-", n)} },
				Effects: func(ctx context.Context) (n int, err error) {
					err = pool.QueryRow(ctx, `SELECT count(*) FROM charges`).Scan(&n)
					return n, err
				},
				Outgoing: func(ctx context.Context, tx pgx.Tx) ([]string, error) {
					sp, err := tx.Begin(ctx) // writes the messages that wait for COMMIT
					if err != nil {
						return nil, err
					}
					rows, err := sp.Query(ctx, `SELECT id || ' ' || encode(payload, 'escape') FROM outbox_messages`)
					if err != nil {
						return nil, err
					}
					return pgx.CollectRows(rows, pgx.RowTo[string])
				},
			})
		})
	}
}
