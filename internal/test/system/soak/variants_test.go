package soak

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// variant is a database and how its consumers run handlers. The variants of a database share its messages.
type variant struct {
	name  string
	share int // this variant handles one part of so many
	every int // about one in so many messages misbehaves
	batch int // how many messages a worker takes
	open  func(t *testing.T, kinds map[string]kind) database
}

var variants = []variant{
	{"pgx", 4, 10, 50, func(t *testing.T, kinds map[string]kind) database {
		return pgxDatabase(t, kinds, func(*consumer.Config[pgx.Tx], acts[pgx.Tx]) {})
	}},
	{"pgx-single", 4, 10, 50, func(t *testing.T, kinds map[string]kind) database {
		return pgxDatabase(t, kinds, func(cfg *consumer.Config[pgx.Tx], _ acts[pgx.Tx]) { cfg.MaxPerTransaction = 1 })
	}},
	{"pgx-queue", 4, 10, 50, func(t *testing.T, kinds map[string]kind) database {
		return pgxDatabase(t, kinds, func(cfg *consumer.Config[pgx.Tx], a acts[pgx.Tx]) { queueing(cfg, a, kinds) })
	}},
	// A consumer stops interleaving for a while after each failure, so fewer messages misbehave, and batches are
	// smaller.
	{"pgx-interleave", 4, 100, 10, interleaved},
	{"sql-postgres", 2, 10, 50, on(postgresDatabase, func(*consumer.Config[*sql.Tx]) {})},
	{"sql-postgres-single", 2, 10, 50, on(postgresDatabase, single)},
	{"mariadb", 2, 10, 50, on(mysqlDatabase, func(*consumer.Config[*sql.Tx]) {})},
	{"mariadb-single", 2, 10, 50, on(mysqlDatabase, single)},
	{"mysql", 2, 10, 50, on(mysqlDatabase, func(*consumer.Config[*sql.Tx]) {})},
	{"mysql-single", 2, 10, 50, on(mysqlDatabase, single)},
	{"sqlite", 2, 10, 50, on(sqliteDatabase, func(*consumer.Config[*sql.Tx]) {})},
	{"sqlite-single", 2, 10, 50, on(sqliteDatabase, single)},
}

func on(open func(*testing.T, map[string]kind, func(*consumer.Config[*sql.Tx])) database,
	vary func(*consumer.Config[*sql.Tx]),
) func(*testing.T, map[string]kind) database {
	return func(t *testing.T, kinds map[string]kind) database { return open(t, kinds, vary) }
}

func single(cfg *consumer.Config[*sql.Tx]) { cfg.MaxPerTransaction = 1 }

// queueing makes the handlers queue their statements.
func queueing(cfg *consumer.Config[pgx.Tx], a acts[pgx.Tx], kinds map[string]kind) {
	exec := func(_ context.Context, b *pgx.Batch, query string, args ...any) error {
		b.Queue(query, args...)
		return nil
	}
	queued := acts[*pgx.Batch]{
		exec: exec, queues: true,
		commit: func(ctx context.Context, b *pgx.Batch) error { return exec(ctx, b, `COMMIT`) },
		leave: func(ctx context.Context, b *pgx.Batch) error {
			return exec(ctx, b, `SELECT generate_series(1, 100000)`)
		},
		effect: a.effect, fails: a.fails, commits: `COMMIT`, session: a.session, cut: a.cut, handled: a.handled,
	}
	cfg.Handle, cfg.HandleBatch = nil, pgxstore.Pipeline(func(ctx context.Context, b *pgx.Batch, msg *consumer.Message) error {
		return queued.handle(ctx, b, msg.ID, kinds[msg.ID])
	})
}

// interleaved runs the handlers of a batch side by side.
func interleaved(t *testing.T, kinds map[string]kind) database {
	var interleaves, succeeded atomic.Int64
	d := pgxDatabase(t, kinds, func(cfg *consumer.Config[pgx.Tx], _ acts[pgx.Tx]) {
		cfg.Interleave = true
		cfg.Store = interleaveCounter{cfg.Store.(*pgxstore.Store), &interleaves, &succeeded}
	})
	d.used = func(t *testing.T) {
		t.Logf("the handlers of %d batches ran side by side, those of %d succeeded", interleaves.Load(),
			succeeded.Load())
		switch {
		case interleaves.Load() == 0:
			t.Error("no handlers ran side by side")
		case interleaves.Load() > 50 && succeeded.Load() == 0: // in a few batches each may have a handler that fails
			t.Error("no batch succeeded whose handlers ran side by side")
		}
	}
	return d
}

// interleaveCounter counts the batches whose handlers ran side by side.
type interleaveCounter struct {
	*pgxstore.Store
	interleaves, succeeded *atomic.Int64
}

func (c interleaveCounter) Interleave(ctx context.Context, tx pgx.Tx, keys []string,
	handlers []func(context.Context, pgx.Tx) error,
) (failed int, err error) {
	c.interleaves.Add(1)
	failed, err = c.Store.Interleave(ctx, tx, keys, handlers)
	if err == nil {
		c.succeeded.Add(1)
	}
	return failed, err
}
