package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Enqueue implements outbox.Writer.
//
// In a transaction of InTx the messages are written together with COMMIT, without an extra round trip. So the handler
// does not find them in the table, and InTx returns the database's errors about them. Rolling back to a savepoint
// discards the messages that were enqueued after it. In a transaction of the caller's own, Enqueue writes the messages
// at once, in one statement; call Wake after the commit. In both cases the role that the transaction has when they are
// written needs permission to insert them.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, msgs ...outbox.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	rows, err := outgoingRows(ready)
	if err != nil {
		return err
	}
	guarded, handler := guardOf(tx)
	ours := guarded != nil && guarded.g.c.store == s.claimer
	switch {
	case ours && handler != nil:
		keep(rows)
		return handler.Later(ctx, func(ctx context.Context) error { return guarded.add(ctx, rows) })
	case ours:
		return guarded.enqueue(ctx, rows)
	case handler != nil: // so that the messages of all handlers are in order
		if err := handler.Alone(ctx); err != nil {
			return err
		}
	}
	_, err = s.write(ctx, tx, rows)
	if err == nil && guarded != nil {
		guarded.g.wakeAfter(s.writer, rows)
	}
	return err
}
