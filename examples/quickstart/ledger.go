package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
)

// Order is what the topic carries, as JSON.
type Order struct {
	ID     string `json:"order_id"`
	Amount int64  `json:"amount"` // in cents
}

// errAmount is what makes an order poison.
var errAmount = errors.New("amount is not positive")

// insertCharge knows nothing of duplicates, and the ledger has no unique key: if a handler runs twice, that shows.
const insertCharge = `INSERT INTO ledger (order_id, amount) VALUES ($1, $2)`

// chargePgx charges an order: an ordinary handler, with an ordinary transaction.
func chargePgx(ctx context.Context, tx pgx.Tx, o Order) error {
	if o.Amount <= 0 {
		return consumer.Permanent(errAmount)
	}
	_, err := tx.Exec(ctx, insertCharge, o.ID, o.Amount)
	return err
}

// chargeSQL is the same on database/sql.
func chargeSQL(ctx context.Context, tx *sql.Tx, o Order) error {
	if o.Amount <= 0 {
		return consumer.Permanent(errAmount)
	}
	_, err := tx.ExecContext(ctx, insertCharge, o.ID, o.Amount)
	return err
}
