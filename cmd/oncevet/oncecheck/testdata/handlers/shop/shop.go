// Package shop has helpers that handlers of another package call.
package shop

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/consumer"
)

type Order struct {
	ID    string
	Cents int64
}

// Ledger writes to the database that it was made with.
type Ledger struct{ Pool *pgxpool.Pool }

func (l Ledger) Record(ctx context.Context, o Order) error {
	_, err := l.Pool.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
	return err
}

// RecordIn writes in its caller's transaction.
func (l Ledger) RecordIn(ctx context.Context, tx pgx.Tx, o Order) error {
	_, err := tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
	return err
}

// Cached reads a table that never changes.
func (l Ledger) Cached(ctx context.Context, id string) (name string, err error) {
	//once:ignore countries never change, so another transaction sees the same
	err = l.Pool.QueryRow(ctx, `SELECT name FROM countries WHERE id = $1`, id).Scan(&name)
	return name, err
}

// Handle is a handler that another package gives to txonce.
func (l Ledger) Handle(ctx context.Context, tx pgx.Tx, o Order) error { return l.Record(ctx, o) }

// Handler makes a handler that another package gives to txonce.
func Handler(pool *pgxpool.Pool) func(context.Context, pgx.Tx, *consumer.Message) error {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		_, err := pool.Exec(ctx, `DELETE FROM carts WHERE id = $1`, string(msg.Payload))
		return err
	}
}

// Save runs on whatever it gets.
func Save(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, o Order,
) error {
	_, err := db.ExecContext(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
	return err
}

type txKey struct{}

func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// Repository uses the transaction in ctx, if there is one.
type Repository struct{ Pool *pgxpool.Pool }

func (r Repository) Insert(ctx context.Context, o Order) error {
	const insert = `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`
	if tx, ok := ctx.Value(txKey{}).(pgx.Tx); ok {
		_, err := tx.Exec(ctx, insert, o.ID, o.Cents)
		return err
	}
	_, err := r.Pool.Exec(ctx, insert, o.ID, o.Cents)
	return err
}

// NewID returns another ID each time, OrderKey the same for the same order.
func NewID() string { return "evt-" + uuid.NewString() }

func OrderKey(o Order) string { return fmt.Sprintf("order-%s", o.ID) }

func Daily(id string) string { return id + time.Now().Format("/2006-01-02") }

// ByPosition is a consumer.KeyFunc.
func ByPosition(msg *consumer.Message) (string, error) { return msg.Topic + msg.Position, nil }

// Till is a database that a handler may give its transaction.
type Till struct {
	Pool *pgxpool.Pool
	Tx   pgx.Tx
}

func (t *Till) Charge(ctx context.Context, o Order) error {
	if t.Tx == nil {
		return Ledger{t.Pool}.Record(ctx, o)
	}
	return Ledger{}.RecordIn(ctx, t.Tx, o)
}

// Till2 gets it by a method.
type Till2 struct {
	db interface {
		Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	}
}

func (t *Till2) Begin(tx pgx.Tx) { t.db = tx }

func (t *Till2) Charge(ctx context.Context, o Order) error {
	_, err := t.db.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.ID, o.Cents)
	return err
}
