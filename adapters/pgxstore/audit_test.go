package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// However handlers share transactions, each message that was committed has one row in the ledger, and a message that was parked has none.
// The rows outlive the claims.
func TestAuditLedger(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]consumer.Config[pgx.Tx]{
		"one transaction":    {},
		"interleaved":        {Interleave: true},
		"alone":              {MaxBatch: 1},
		"handled as a whole": {HandleBatch: func(context.Context, pgx.Tx, []*consumer.Message) error { return nil }},
		"a few at once":      {MaxBatch: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newOutboxDB(t, testdb.Postgres, 3)
			cfg := settings
			cfg.Name, cfg.Store, cfg.Key, cfg.AuditEvery, cfg.Logger = "billing", db.store, consumer.MessageID, 1, slog.New(slog.DiscardHandler)
			cfg.Window = dedup.MinWindow
			parked := 0
			if cfg.HandleBatch == nil {
				parked = 1
				cfg.Handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
					if m.ID == "order-5" {
						return consumer.Permanent(errors.New("broken"))
					}
					return effect(ctx, tx, m.ID)
				}
			}
			c, err := consumer.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var msgs []*consumer.Message
			for i := range 20 {
				msgs = append(msgs, &consumer.Message{ID: fmt.Sprint("order-", i), Topic: "orders", Position: fmt.Sprint("orders/0/", i), Payload: []byte("x"), Time: time.Now()})
			}
			for range 2 {
				for i, err := range c.ProcessBatch(t.Context(), msgs) {
					if err != nil {
						t.Fatalf("message %d: %v", i, err)
					}
				}
			}
			count := func() string {
				var claims, rows, keys int
				err := db.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM processed_messages), count(*), count(DISTINCT claim_key) FROM audit_ledger
					WHERE consumer = 'billing' AND position LIKE 'orders/0/%'`).Scan(&claims, &rows, &keys)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%d claims, %d rows of %d keys", claims, rows, keys)
			}
			want := []string{
				fmt.Sprintf("%d claims, %d rows of %[1]d keys", 20-parked, 20-parked),
				fmt.Sprintf("0 claims, %d rows of %[1]d keys", 20-parked),
				"0 claims, 0 rows of 0 keys",
			}
			for _, want := range want {
				for range 2 { // each deletes at most so many rows
					if _, err := db.store.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 10}); err != nil {
						t.Fatal(err)
					}
				}
				if got := count(); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				db.exec(t, `UPDATE processed_messages SET expires_at = expires_at - interval '65 minutes'`)
				db.exec(t, `UPDATE audit_ledger SET expires_at = expires_at - interval '65 minutes'`)
			}
		})
	}
}
