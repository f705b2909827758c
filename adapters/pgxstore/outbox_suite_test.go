package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func TestOutboxStore(t *testing.T) {
	for name, cfg := range map[string]pgxstore.OutboxConfig{
		"table":    {},
		"rotating": {Mode: pgxstore.OutboxRotating, RotateEvery: 1},
	} {
		t.Run(name, func(t *testing.T) {
			servers(t, func(t *testing.T, server func(testing.TB) string) {
				testOutbox(t, cfg, func(t *testing.T) *outboxDB { return newOutboxDB(t, server, 6) })
			})
		})
	}
}

func testOutbox(t *testing.T, cfg pgxstore.OutboxConfig, newDB func(t *testing.T) *outboxDB) {
	outboxtest.TestStore(t, outboxtest.Harness[pgx.Tx]{
		Features: outboxtest.Features{LateSequence: true},
		Run: func(t *testing.T, c func(*testing.T)) {
			t.Parallel()
			c(t)
		},
		New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[pgx.Tx] {
			db, cfg := newDB(t), cfg
			cfg.KeepSent = o.KeepSent
			store := newStore(t, pgxstore.Config{Pool: db.pool, Outbox: cfg})
			return outboxtest.Outbox[pgx.Tx]{
				Writer: store, Queue: store, Operations: store,
				InTx: func(ctx context.Context, fn func(tx pgx.Tx) error) error {
					return store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
				},
				Retryable: store.Retryable,
				Serialize: store.Serialize,
				Sent: func(t *testing.T) []string {
					return db.strings(t, `SELECT id FROM outbox_sent ORDER BY sent_at, seq`)
				},
			}
		},
	})
}
