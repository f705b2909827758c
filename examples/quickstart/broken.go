package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// byHand is the handler as it is often written: it claims an order in a transaction of its own, or publishes the event
// after the commit. It passes every test without a crash. It is a consumer.Processor, so the rest of the demo needs no
// change.
type byHand struct {
	db      *sql.DB
	store   *sqlstore.Store
	book    ledger
	eventID func(order string) string
	events  outbox.Publisher
	way     string // one of ways
	reports *reporter
	stop    *fault
}

// ways are the values of -broken.
var ways = []string{"mark-first", "effect-first", "dual-write"}

// Process implements consumer.Processor.
func (b *byHand) Process(ctx context.Context, msg *consumer.Message) error {
	b.reports.begin(msg)
	var o Order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return fmt.Errorf("not an order: %w", err)
	}
	if o.Amount <= 0 {
		return nil // a careful handler would log this
	}
	handle := b.effectFirst
	switch b.way {
	case "mark-first":
		handle = b.markFirst
	case "dual-write":
		handle = b.dualWrite
	}
	if err := handle(ctx, o); err != nil {
		return &consumer.RetryError{Err: err, After: 100 * time.Millisecond, Held: true}
	}
	return nil
}

// markFirst loses an order if the worker is killed between its two steps: the next delivery looks like a duplicate.
func (b *byHand) markFirst(ctx context.Context, o Order) error {
	first, err := b.claim(ctx, o, func(*sql.Tx) error { return nil })
	if err != nil || !first {
		return err
	}
	b.stop.At(o.ID)
	balance, err := b.charge(ctx, b.db, o)
	if err != nil {
		return err
	}
	return b.announce(ctx, o, balance)
}

// effectFirst charges twice if the worker is killed between its two steps: the next delivery finds no claim.
func (b *byHand) effectFirst(ctx context.Context, o Order) error {
	_, seen, err := b.store.Lookup(ctx, billingKey(o.ID))
	if err != nil || seen {
		return err
	}
	balance, err := b.charge(ctx, b.db, o)
	if err != nil {
		return err
	}
	if err := b.announce(ctx, o, balance); err != nil {
		return err
	}
	b.stop.At(o.ID)
	_, err = b.claim(ctx, o, func(*sql.Tx) error { return nil })
	return err
}

// dualWrite charges each order once, but loses the event if the worker is killed after the commit: the next delivery is
// a duplicate.
func (b *byHand) dualWrite(ctx context.Context, o Order) error {
	var balance int64
	first, err := b.claim(ctx, o, func(tx *sql.Tx) (err error) {
		balance, err = b.charge(ctx, tx, o)
		return err
	})
	if err != nil || !first {
		return err
	}
	b.stop.At(o.ID)
	return b.announce(ctx, o, balance)
}

// claim runs work in a transaction that claims the order, unless it was claimed before.
func (b *byHand) claim(ctx context.Context, o Order, work func(tx *sql.Tx) error) (first bool, err error) {
	err = b.store.InTx(ctx, []dedup.Record{{Key: billingKey(o.ID)}}, func(tx *sql.Tx, claims []dedup.Claim) error {
		if first = claims[0].Verdict == dedup.First; !first {
			return nil
		}
		return work(tx)
	})
	return first, err
}

// execer is a *sql.DB or a *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (b *byHand) charge(ctx context.Context, in execer, o Order) (balance int64, err error) {
	if _, err = in.ExecContext(ctx, insertCharge, o.ID, o.Amount); err == nil {
		err = in.QueryRowContext(ctx, addToAccount, o.Customer, o.Amount).Scan(&balance)
	}
	return balance, err
}

// announce publishes the event under the ID that the outbox would give it.
func (b *byHand) announce(ctx context.Context, o Order, balance int64) error {
	event := b.book.charged(o, balance)
	event.Headers = map[string]string{outbox.HeaderID: b.eventID(o.ID)}
	for _, err := range b.events.Publish(ctx, []outbox.Message{event}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// workBroken is workOnSQL with byHand instead of a consumer.Consumer.
func workBroken(ctx context.Context, w workerConfig, way string, reports *reporter, stop *fault) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	db, err := sql.Open(w.Driver, w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: w.Dialect})
	if err != nil {
		return err
	}
	hand := &byHand{
		db: db, store: store, book: ledger{events: w.Events}, eventID: eventID(w.Events), way: way,
		reports: reports, stop: stop,
	}
	broker, err := w.connect(hand)
	if err != nil {
		return err
	}
	defer broker.close()
	hand.events = broker.events
	return broker.orders.Run(ctx)
}
