package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

type txonce struct {
	*place
	relay *relay.Relay
}

// newTxonce returns the setup of txonce. A relay in another process has its own store and learns of commits by NOTIFY.
func newTxonce(otherProcess bool) func(context.Context, *place) (system, error) {
	return func(_ context.Context, p *place) (system, error) {
		queue := p.store
		if otherProcess {
			var err error
			if queue, err = p.newStore(pgxstore.Config{}); err != nil {
				return nil, err
			}
		}
		client, err := p.client()
		if err != nil {
			return nil, err
		}
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
		if err != nil {
			return nil, err
		}
		r, err := relay.New(relay.Config{Queue: queue, Publisher: confirming{p, publisher}})
		return &txonce{p, r}, err
	}
}

// confirming records what the broker confirmed.
type confirming struct {
	*place
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

func (p *place) message(id string) outbox.Message {
	return outbox.Message{ID: id, Topic: p.topic, OrderingKey: key(id), Payload: payload}
}

func (t *txonce) Fill(ctx context.Context, from, to int) error {
	for ; from < to; from += 1000 {
		err := t.begin(ctx, func(tx pgx.Tx) error {
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
	return t.begin(ctx, func(tx pgx.Tx) error {
		if err := effect(ctx, tx, id); err != nil {
			return err
		}
		return t.store.Enqueue(ctx, tx, t.message(id))
	})
}

func effect(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, insertEffect, id)
	return err
}

func (t *txonce) begin(ctx context.Context, fn func(pgx.Tx) error) error {
	return t.store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error { return fn(tx) })
}

// inTx returns a transaction with a claim, an effect and n messages.
func (p *place) inTx(n int) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		recs := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}}
		return p.store.InTx(ctx, recs, func(tx pgx.Tx, _ []dedup.Claim) error { return p.enqueue(ctx, tx, id, n) })
	}
}

// ownTx is a transaction that the program begins and commits itself.
func (p *place) ownTx(ctx context.Context, id string) error {
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return p.enqueue(ctx, tx, id, 1) })
	if err == nil {
		p.store.Wake(ctx)
	}
	return err
}

func (p *place) enqueue(ctx context.Context, tx pgx.Tx, id string, n int) error {
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		msgs[i] = p.message(fmt.Sprint(id, "/", i))
	}
	if err := p.store.Enqueue(ctx, tx, msgs...); err != nil {
		return err
	}
	return effect(ctx, tx, id)
}

func (t *txonce) Relay(ctx context.Context) error { return t.relay.Run(ctx) }
