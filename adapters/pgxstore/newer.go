package pgxstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/driver"
)

// Newer reports whether version is the highest version of object that has been seen, and records it as part of tx. Use
// it where events of one object arrive out of order:
//
//	newer, err := store.Newer(ctx, tx, "subscription/"+s.ID, s.Version)
//	if err != nil || !newer {
//		return err // not newer: a later event has been handled before
//	}
//
// An equal version is not newer: choose versions that differ for each change of the object, such as a sequence number
// or a time in nanoseconds. object is any name of 1 to dedup.MaxID bytes, which all consumers of the schema share. If
// tx rolls back, version counts as never seen.
//
// Newer takes one round trip. Transactions that ask about the same object wait for each other, as with an UPDATE of one
// row. So they write the state of the object in the order of versions. Above READ COMMITTED, a
// transaction that had to wait fails with a Retryable error. If a transaction asks about several objects, let all
// transactions ask in the same order: otherwise the server may end one of them with a Retryable error. A handler that
// consumer.Config.Interleave runs has the transaction for itself from here on: see LockKeys. A Pipeline reads no
// results before it sends its statements: there, write the comparison into the statement that changes the state.
//
// The row of an object stays in the table entity_versions. docs/versions.md says when it may be deleted.
func (k *keys) Newer(ctx context.Context, tx pgx.Tx, object string, version int64) (bool, error) {
	if err := driver.CheckObject(object); err != nil {
		return false, fmt.Errorf("pgxstore: newer: %w", err)
	}
	// A transaction does not wait for itself: handlers that share one would write their states in any order.
	if _, handler := guardOf(tx); handler != nil {
		if err := handler.Alone(ctx); err != nil {
			return false, err
		}
	}
	if err := k.resolve(ctx, tx); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, k.sql.Newer, object, version)
	return tag.RowsAffected() == 1, stepError("newer", err)
}
