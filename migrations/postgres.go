package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// postgresTx is a transaction on PostgreSQL that holds the lock of Apply.
type postgresTx struct{ *sql.Tx }

// lockKey is the key of the advisory lock: "txonce" in ASCII.
const lockKey = 0x74786f6e6365

func beginPostgres(ctx context.Context, conn *sql.Conn, schema string) (_ transaction, err error) {
	// READ COMMITTED, so that the statements after the lock see what its previous holder committed.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("migrations: begin: %w", err)
	}
	defer func() {
		if err != nil {
			tx.Rollback()
		}
	}()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(lockKey)); err != nil {
		return nil, fmt.Errorf("migrations: lock: %w", err)
	}
	if schema == "" {
		return postgresTx{tx}, nil
	}
	var exists bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text)`,
		schema).Scan(&exists); err != nil {
		return nil, fmt.Errorf("migrations: look for schema %q: %w", schema, err)
	}
	quoted := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
	if !exists {
		if _, err := tx.ExecContext(ctx, `CREATE SCHEMA `+quoted); err != nil {
			return nil, fmt.Errorf("migrations: create schema: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `SELECT set_config('search_path', $1::text, true)`, quoted); err != nil {
		return nil, fmt.Errorf("migrations: set search_path: %w", err)
	}
	return postgresTx{tx}, nil
}

func (t postgresTx) installed(ctx context.Context) (yes bool, err error) {
	err = t.QueryRowContext(ctx, `SELECT to_regclass('txonce_schema') IS NOT NULL`).Scan(&yes)
	return yes, err
}
