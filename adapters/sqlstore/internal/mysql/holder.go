package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/consumer/ops"
)

// Session implements engine.Holders.
func (d *DB) Session(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT CONNECTION_ID()`).Scan(&id)
	return id, err
}

// Holder implements engine.Holders. The server answers only users with the privilege PROCESS, and MySQL only those that
// may also read performance_schema.
func (d *DB) Holder(ctx context.Context, q engine.Queryer, session int64) (h ops.Holder, err error) {
	server, err := d.describe(ctx, q)
	if err != nil {
		return h, err
	}
	query := d.Plain.Holder
	if server.mariaDB {
		query = d.Plain.HolderMariaDB
	}
	var micros int64
	var now engine.Instant
	err = q.QueryRowContext(ctx, query, session).Scan(&h.PID, &micros, &now, &h.State, &h.Client)
	h.Age = max(time.Duration(micros)*time.Microsecond, 0)
	h.Since = now.Add(-h.Age)
	return h, err
}
