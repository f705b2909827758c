package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Order is the message on the topic of orders, as JSON.
type Order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"` // in cents
}

// JSON returns the message's payload.
func (o Order) JSON() []byte {
	b, _ := json.Marshal(o) // cannot fail: strings and a number
	return b
}

// Charged is the message on the topic of events, as JSON. The events of a customer are ordered by Balance.
type Charged struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"`
	Balance int64  `json:"balance"` // of the customer's account, including this charge
}

// store holds a worker's claims, effects and events.
type store[TTx any] interface {
	dedup.Store[TTx]
	outbox.Writer[TTx]
	driver.Queue
	Activity() ops.ActivityKeeper
}

// handler charges an order in tx and enqueues the event about it.
type handler[TTx any] func(ctx context.Context, tx TTx, events outbox.Writer[TTx], o Order) error

// ledger charges orders.
type ledger struct {
	events string // topic
}

// errAmount marks an order as poison.
var errAmount = errors.New("amount is not positive")

const (
	// insertCharge does not guard against duplicates, and the ledger has no unique key: a second charge would show.
	insertCharge = `INSERT INTO ledger (order_id, amount) VALUES ($1, $2)`

	// addToAccount locks the customer's row until the transaction ends. So the charges of a customer, and their events,
	// have one order.
	addToAccount = `INSERT INTO accounts (customer, balance) VALUES ($1, $2)
		ON CONFLICT (customer) DO UPDATE SET balance = accounts.balance + excluded.balance RETURNING balance`
)

// onPgx is an ordinary handler on an ordinary transaction.
func (l ledger) onPgx(ctx context.Context, tx pgx.Tx, events outbox.Writer[pgx.Tx], o Order) error {
	if o.Amount <= 0 {
		return consumer.Permanent(errAmount)
	}
	if _, err := tx.Exec(ctx, insertCharge, o.ID, o.Amount); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRow(ctx, addToAccount, o.Customer, o.Amount).Scan(&balance); err != nil {
		return err
	}
	return events.Enqueue(ctx, tx, l.charged(o, balance))
}

// onSQL is the same on database/sql.
func (l ledger) onSQL(ctx context.Context, tx *sql.Tx, events outbox.Writer[*sql.Tx], o Order) error {
	if o.Amount <= 0 {
		return consumer.Permanent(errAmount)
	}
	if _, err := tx.ExecContext(ctx, insertCharge, o.ID, o.Amount); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRowContext(ctx, addToAccount, o.Customer, o.Amount).Scan(&balance); err != nil {
		return err
	}
	return events.Enqueue(ctx, tx, l.charged(o, balance))
}

// onMySQL is the same in MySQL's dialect.
func (l ledger) onMySQL(ctx context.Context, tx *sql.Tx, events outbox.Writer[*sql.Tx], o Order) error {
	if o.Amount <= 0 {
		return consumer.Permanent(errAmount)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (order_id, amount) VALUES (?, ?)`, o.ID,
		o.Amount); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (customer, balance) VALUES (?, ?)
		ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance)`, o.Customer, o.Amount); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE customer = ?`,
		o.Customer).Scan(&balance); err != nil {
		return err
	}
	return events.Enqueue(ctx, tx, l.charged(o, balance))
}

// byCustomer charges the orders of a batch sorted by customer. Two workers that lock several accounts lock them in the
// same order, so they cannot deadlock.
func byCustomer[TTx any](charge func(ctx context.Context, tx TTx, o Order) error) consumer.BatchHandler[TTx] {
	return func(ctx context.Context, tx TTx, msgs []*consumer.Message) error {
		orders := make(map[*consumer.Message]Order, len(msgs))
		for _, msg := range msgs {
			var o Order
			if err := json.Unmarshal(msg.Payload, &o); err != nil {
				return consumer.Permanent(err)
			}
			orders[msg] = o
		}
		sorted := slices.Clone(msgs)
		slices.SortStableFunc(sorted, func(a, b *consumer.Message) int { return cmp.Compare(orders[a].Customer, orders[b].Customer) })
		for _, msg := range sorted {
			if err := charge(consumer.Scope(ctx, msg), tx, orders[msg]); err != nil {
				return err
			}
		}
		return nil
	}
}

// charged returns the event. Enqueue derives its ID from the order that is being handled.
func (l ledger) charged(o Order, balance int64) outbox.Message {
	// cannot fail: strings and numbers
	payload, _ := json.Marshal(Charged{OrderID: o.ID, Amount: o.Amount, Balance: balance})
	return outbox.Message{Topic: l.events, OrderingKey: o.Customer, Payload: payload}
}
