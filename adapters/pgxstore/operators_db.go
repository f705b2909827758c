package pgxstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/operator"
)

// operatorDB implements operator.Database and positions.Database with the pool, through database/sql, so that all stores share the code above
// it.
type operatorDB struct{ *sessions }

// Statements implements operator.Database.
func (d operatorDB) Statements(ctx context.Context) (*dialect.Operator, error) {
	if err := d.resolve(ctx, d.cfg.Pool); err != nil {
		return nil, err
	}
	return &d.operations, nil
}

// operatorTimeout limits one step, because the callers may hold all of the pool's connections.
const operatorTimeout = 30 * time.Second

// Read implements operator.Database.
func (d operatorDB) Read(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	db := stdlib.OpenDBFromPool(d.cfg.Pool)
	defer db.Close()
	return operatorError(what, f(ctx, db))
}

// Write implements operator.Database.
func (d operatorDB) Write(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	return d.onConn(ctx, what, func(ctx context.Context, conn *sql.Conn) error { return d.write(ctx, conn, f) })
}

// Single implements positions.Database.
func (d operatorDB) Single(ctx context.Context, what string,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	return d.onConn(ctx, what, func(ctx context.Context, conn *sql.Conn) error { return f(ctx, conn) })
}

// onConn runs f with one of the pool's connections, which is closed if an error may be the fault of its session.
func (d operatorDB) onConn(ctx context.Context, what string,
	f func(ctx context.Context, conn *sql.Conn) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	db := stdlib.OpenDBFromPool(d.cfg.Pool)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return operatorError(what, err)
	}
	defer conn.Close() // gives it back to the pool
	err = f(ctx, conn)
	if blamesSession(err) {
		_ = conn.Raw(func(driver any) error {
			d.discard(ctx, driver.(*stdlib.Conn).Conn())
			return nil
		})
	}
	return operatorError(what, err)
}

func (d operatorDB) write(ctx context.Context, conn *sql.Conn,
	f func(ctx context.Context, q operator.Queryer) error,
) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	if _, err := tx.ExecContext(ctx, d.operations.Limits); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func operatorError(what string, err error) error {
	switch {
	case err == nil, errors.Is(err, ops.ErrExpected):
		return err
	case isUndefined(err):
		return database.Errorf("%w: %s: %w; %s", dedup.ErrSchema, what, err, howToMigrate)
	}
	return database.Errorf("pgxstore: %s: %w", what, err)
}
