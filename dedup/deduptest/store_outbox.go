package deduptest

import (
	"context"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

var _ outbox.Writer[*Tx] = (*Store)(nil)

// Outbox returns the database's outbox: the Queue of a relay, and its Operations. Set its Shards before use.
func (db *Database) Outbox() *outboxtest.Memory { return db.outbox }

// Outbox returns the outbox of the Store's database.
func (s *Store) Outbox() *outboxtest.Memory { return s.db.outbox }

// Enqueue implements outbox.Writer: the messages are committed with tx.
func (s *Store) Enqueue(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
	if len(msgs) > 0 {
		if err := tx.announce("enqueue for", msgs[0].Topic); err != nil {
			return err
		}
	}
	joined, err := tx.joined()
	if err != nil {
		return err
	}
	return s.db.outbox.Enqueue(ctx, joined, msgs...)
}

// LockOrderingKey waits, until ctx ends, for other transactions that have locked key, and locks it until tx ends.
func (s *Store) LockOrderingKey(ctx context.Context, tx *Tx, key string) error {
	if err := tx.announce("lock the ordering key", key); err != nil {
		return err
	}
	joined, err := tx.joined()
	if err != nil {
		return err
	}
	return s.db.outbox.LockOrderingKey(ctx, joined, key)
}

// joined returns the part of tx that writes to the outbox.
func (tx *Tx) joined() (*outboxtest.Tx, error) {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if tx.outbox == nil {
		tx.outbox = tx.db.outbox.Begin()
	}
	return tx.outbox, nil
}
