package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

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
// row. So they write the state of the object in the order of versions. On PostgreSQL above READ COMMITTED, a
// transaction that had to wait fails with a Retryable error. If a transaction asks about several objects, let all
// transactions ask in the same order: otherwise the server may end one of them with a Retryable error.
//
// The row of an object stays in the table entity_versions. docs/versions.md says when it may be deleted.
func (s *Store) Newer(ctx context.Context, tx *sql.Tx, object string, version int64) (bool, error) {
	if err := driver.CheckObject(object); err != nil {
		return false, fmt.Errorf("sqlstore: newer: %w", err)
	}
	if err := s.locate(ctx, tx); err != nil {
		return false, err
	}
	newer, err := s.db.Claims.Newer(ctx, tx, object, version)
	return newer && err == nil, s.statementError(err)
}
