package deduptest

import (
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

var _ dedup.AuditLedger[*Tx] = (*Store)(nil)

// LedgerRow is a row of the audit ledger: a committed transaction has handled a message with this key.
type LedgerRow struct {
	Key      dedup.KeyHash
	Position string // where the message was
}

// ledgerRow also says when a Purge deletes it.
type ledgerRow struct {
	LedgerRow
	expires time.Time
}

// RecordHandled implements dedup.AuditLedger.
func (s *Store) RecordHandled(_ context.Context, tx *Tx, key dedup.Key, position string, keep time.Duration) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	tx.ledger = append(tx.ledger, ledgerRow{LedgerRow{key.Hash(), position}, s.db.now().Add(keep)})
	return nil
}

// Ledger returns the committed rows of the audit ledger, the oldest first.
func (db *Database) Ledger() (rows []LedgerRow) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.ledger {
		rows = append(rows, r.LedgerRow)
	}
	return rows
}

// forgetLedger deletes expired rows. It is called with db.mu locked.
func (db *Database) forgetLedger(now time.Time) {
	db.ledger = slices.DeleteFunc(db.ledger, func(r ledgerRow) bool { return !r.expires.After(now) })
}
