package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

type txonce struct {
	*world
	store *pgxstore.Store
	relay *relay.Relay
}

// newTxonce returns the setup of txonce. A relay in another process has its own store and learns of commits by NOTIFY.
func newTxonce(otherProcess bool) func(context.Context, *world) (system, error) {
	return func(ctx context.Context, w *world) (system, error) {
		if err := migrations.Apply(ctx, w.db, "postgres", ""); err != nil {
			return nil, err
		}
		store, err := pgxstore.New(pgxstore.Config{Pool: w.pool})
		if err != nil {
			return nil, err
		}
		queue := store
		if otherProcess {
			if queue, err = pgxstore.New(pgxstore.Config{Pool: w.pool}); err != nil {
				return nil, err
			}
		}
		client, err := w.client()
		if err != nil {
			return nil, err
		}
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
		if err != nil {
			return nil, err
		}
		r, err := relay.New(relay.Config{Queue: queue, Publisher: confirming{w, publisher}})
		return &txonce{w, store, r}, err
	}
}

// confirming records what the broker confirmed.
type confirming struct {
	*world
	to outbox.Publisher
}

func (c confirming) Publish(ctx context.Context, msgs []outbox.Message) []error {
	errs := c.to.Publish(ctx, msgs)
	ids := make([]string, 0, len(msgs))
	for i := range msgs {
		if errs == nil || errs[i] == nil {
			ids = append(ids, msgs[i].ID)
		}
	}
	c.acknowledge(ctx, ids...)
	return errs
}

// key spreads messages over a thousand keys.
func key(id string) string {
	h := 0
	for _, c := range id {
		h = (h*31 + int(c)) % 1000
	}
	return fmt.Sprint("key-", h)
}

func (t *txonce) message(id string) outbox.Message {
	return outbox.Message{ID: id, Topic: t.topic, Key: key(id), Payload: payload}
}

func (t *txonce) Fill(ctx context.Context, from, to int) error {
	for ; from < to; from += 1000 {
		err := t.inTx(ctx, func(tx pgx.Tx) error {
			var msgs []outbox.Message
			for i := from; i < min(to, from+1000); i++ {
				msgs = append(msgs, t.message(fmt.Sprint(i)))
			}
			return t.store.Enqueue(ctx, tx, msgs...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *txonce) Tx(ctx context.Context, id string) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if err := effect(ctx, tx, id); err != nil {
			return err
		}
		return t.store.Enqueue(ctx, tx, t.message(id))
	})
}

func (t *txonce) inTx(ctx context.Context, fn func(pgx.Tx) error) error {
	return t.store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
}

func (t *txonce) Relay(ctx context.Context) error { return t.relay.Run(ctx) }
