package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// ErrNewer is the error of Apply for a schema of a newer release that does not work with this program.
var ErrNewer = errors.New("migrations: schema is newer than this program")

// Apply installs the tables that db lacks. dialect is "postgres", "sqlite" or "mysql", which includes MariaDB.
//
// On PostgreSQL schema is the schema for the tables, which Apply creates if it is missing; empty: the first schema of
// search_path. On MySQL schema is the name of a database; empty: the database of the DSN. On SQLite it must be empty.
//
// Any number of processes may call Apply at the same time: a lock makes them wait for each other. Each migration is a
// transaction of its own. After a crash the next call goes on after the last COMMIT. On MySQL, where each statement
// commits by itself, it runs the statements of the interrupted migration again, which does no harm.
//
// Apply does not wait for a database that is away: it returns an error.
//
// Apply changes nothing if the database is up to date or newer than this program. A newer database is no error if it
// declares that this program works with it, as in a rolling deployment. Otherwise the error is ErrNewer.
func Apply(ctx context.Context, db *sql.DB, dialect, schema string) error {
	all, err := steps(dialect)
	if err != nil {
		return err
	}
	return eachStep(ctx, db, dialect, schema, func(installed, worksWith int) (name, file string, err error) {
		switch {
		case installed < len(all):
			return all[installed].name, all[installed].up, nil
		case worksWith <= len(all):
			return "", "", nil
		}
		return "", "", fmt.Errorf("%w: it is at version %d and works with programs that know %d or later; the latest known here is %d",
			ErrNewer, installed, worksWith, len(all))
	})
}

type beginner func(ctx context.Context, conn *sql.Conn, schema string) (transaction, error)

// onOneConnection calls f with a connection, which goes back to the pool afterwards as it was.
func onOneConnection(ctx context.Context, db *sql.DB, dialect, schema string,
	f func(conn *sql.Conn, begin beginner) error,
) error {
	begin, known := map[string]beginner{"postgres": beginPostgres, "sqlite": beginSQLite, "mysql": beginMySQL}[dialect]
	if !known {
		return fmt.Errorf("migrations: Apply does not know the dialect %q", dialect)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrations: connect: %w", err)
	}
	defer conn.Close()
	if dialect == "mysql" && schema != "" {
		// the connection now uses another database, so it must not go back to the pool
		defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	}
	return f(conn, begin)
}

// transaction is a transaction that holds the lock of Apply.
type transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
	installed(ctx context.Context) (bool, error) // reports whether the table txonce_schema exists
}

// chooser returns the file to run at the installed number. An empty name ends the work.
type chooser func(installed, worksWith int) (name, file string, err error)

// eachStep runs the files that choose returns, each in a transaction with the lock of Apply.
func eachStep(ctx context.Context, db *sql.DB, dialect, schema string, choose chooser) error {
	return onOneConnection(ctx, db, dialect, schema, func(conn *sql.Conn, begin beginner) error {
		for {
			done, err := oneStep(ctx, conn, schema, begin, choose)
			if err != nil || done {
				return err
			}
		}
	})
}

func oneStep(ctx context.Context, conn *sql.Conn, schema string, begin beginner,
	choose chooser,
) (done bool, err error) {
	tx, err := begin(ctx, conn, schema)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // no effect after Commit
	installed, worksWith, err := version(ctx, tx)
	if err != nil {
		return false, fmt.Errorf("migrations: read the schema's version: %w", err)
	}
	name, file, err := choose(installed, worksWith)
	if err != nil || name == "" {
		return true, err
	}
	if _, err := tx.ExecContext(ctx, file); err != nil {
		return false, fmt.Errorf("migrations: apply %s: %w", name, err)
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("migrations: apply %s: commit: %w", name, err)
	}
	return false, nil
}

// version returns the highest installed number, and the lowest number that a program must know to work with it.
func version(ctx context.Context, tx transaction) (n, worksWith int, err error) {
	installed, err := tx.installed(ctx)
	if err != nil || !installed {
		return 0, 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0), coalesce(max(works_with), 0) FROM txonce_schema`).Scan(&n, &worksWith)
	return n, worksWith, err
}
