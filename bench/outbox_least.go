package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
)

// least is not an outbox but the limit of what is possible on this machine: a row in a plain table, written in the
// round trip of COMMIT, and a message that is then sent to Kafka from memory and is lost in a crash.
type least struct {
	*place
	producer  sarama.SyncProducer
	committed chan string // to publish
}

func newLeast(ctx context.Context, p *place) (system, error) {
	_, err := p.pool.Exec(ctx, `CREATE TABLE least (seq bigserial PRIMARY KEY, id text, topic text, key bytea, payload bytea)`)
	if err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	return &least{place: p, producer: producer, committed: make(chan string, 1000)}, err
}

func (l *least) Fill(context.Context, int, int) error { return errors.ErrUnsupported }

func (l *least) Tx(ctx context.Context, id string) error {
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := effect(ctx, tx, id); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO least (id, topic, key, payload) VALUES ($1, $2, $3, $4)`, id, l.topic, []byte(key(id)),
		payload)
	b.Queue(`COMMIT`)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	select {
	case l.committed <- id:
	default: // no relay runs
	}
	return nil
}

func (l *least) Relay(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-l.committed:
			_, _, err := l.producer.SendMessage(&sarama.ProducerMessage{Topic: l.topic, Key: sarama.StringEncoder(key(id)), Value: sarama.ByteEncoder(payload)})
			if err != nil {
				return err
			}
			l.acknowledge(ctx, id)
		}
	}
}
