package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Store is a sqlstore.Store whose transactions are a *gorm.DB. It shares consumer names and the outbox with the Store
// that it was made from. It is safe for concurrent use.
type Store struct {
	*sqlstore.Adapted[*gorm.DB]
}

var (
	_ dedup.Store[*gorm.DB]       = (*Store)(nil)
	_ driver.TxVerifier[*gorm.DB] = (*Store)(nil)
)

// New returns a Store. db is the application's gorm.DB on the database of store; New registers a callback in it, and
// must not run at the same time as statements of db. Several Stores may have the same db.
func New(store *sqlstore.Store, db *gorm.DB) (*Store, error) {
	if db == nil {
		return nil, errors.New("gormstore: New: a *gorm.DB is required")
	}
	if db.Error != nil {
		return nil, fmt.Errorf("gormstore: New: the *gorm.DB has an error: %w", db.Error)
	}
	if TxOf(db) != nil {
		return nil, errors.New("gormstore: New: the *gorm.DB is a transaction: want the one that gorm.Open returned")
	}
	adapted, err := sqlstore.Adapt(store,
		func(ctx context.Context, tx *sql.Tx) (*gorm.DB, error) {
			session := db.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a Statement of its own
			session.Statement.ConnPool = &transaction{Tx: tx, savepoints: make(map[string]error)}
			return session, nil
		}, TxOf)
	if err != nil {
		return nil, fmt.Errorf("gormstore: New: %w", err)
	}
	if err := noteFailures(db); err != nil {
		return nil, fmt.Errorf("gormstore: New: register a callback: %w", err)
	}
	return &Store{adapted}, nil
}

// TxOf returns the transaction that the statements of db run in, for a library that needs a *sql.Tx. It is nil outside
// of a transaction. Statements that such a library sends are part of the transaction, but the Store does not remember
// their failures.
func TxOf(db *gorm.DB) *sql.Tx {
	if db == nil || db.Statement == nil {
		return nil
	}
	switch pool := poolOf(db).(type) {
	case *sql.Tx:
		return pool
	case *transaction:
		return pool.Tx
	}
	return nil
}

// poolOf returns what the statements of db are sent to, below gorm's cache of prepared statements.
func poolOf(db *gorm.DB) gorm.ConnPool {
	if prepared, ok := db.Statement.ConnPool.(*gorm.PreparedStmtTX); ok {
		return prepared.Tx
	}
	return db.Statement.ConnPool
}

// InTx implements dedup.Store. When fn returns nil after a failed statement, InTx rolls back and returns the
// statement's error.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx *gorm.DB, claims []dedup.Claim) error) error {
	return s.Adapted.InTx(ctx, recs, func(tx *gorm.DB, claims []dedup.Claim) error {
		if err := fn(tx, claims); err != nil {
			return err
		}
		return failureIn(tx)
	})
}

// VerifyTx implements driver.TxVerifier: it also finds which handler of a batch ignored a failed statement.
func (s *Store) VerifyTx(ctx context.Context, tx *gorm.DB) error {
	if err := failureIn(tx); err != nil {
		return err
	}
	return s.Adapted.VerifyTx(ctx, tx)
}
