package postgres

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer/ops"
)

// Session implements engine.Holders. The number is the server's own, also behind a pooler, and a pooler leaves a
// transaction in its session.
func (d *DB) Session(ctx context.Context, tx *sql.Tx) (pid int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT CAST(pg_backend_pid() AS bigint)`).Scan(&pid)
	return pid, err
}

// Holder implements engine.Holders.
func (d *DB) Holder(ctx context.Context, q engine.Queryer, session int64) (h ops.Holder, err error) {
	var since, now engine.Instant
	err = q.QueryRowContext(ctx, d.plain.Holder, session).Scan(&h.PID, &since, &now, &h.State, &h.Client)
	h.Since, h.Age = since.Time, max(now.Sub(since.Time), 0)
	return h, err
}
