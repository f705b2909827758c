// Package queries is as sqlc generates it for pgx.
package queries

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

func New(db DBTX) *Queries { return &Queries{db: db} }

type Queries struct{ db DBTX }

func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }

const insertCharge = `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`

type InsertChargeParams struct {
	OrderID string
	Cents   int64
}

func (q *Queries) InsertCharge(ctx context.Context, arg InsertChargeParams) error {
	_, err := q.db.Exec(ctx, insertCharge, arg.OrderID, arg.Cents)
	return err
}

func (q *Queries) Total(ctx context.Context) (int64, error) {
	row := q.db.QueryRow(ctx, `SELECT sum(cents) FROM charges`)
	var total int64
	err := row.Scan(&total)
	return total, err
}
