package migrations

import (
	"context"
	"database/sql"
	"fmt"
)

// Installed returns the number of the latest migration that is installed; 0: none. Its arguments are those of Apply. It
// changes nothing.
func Installed(ctx context.Context, db *sql.DB, dialect, schema string) (number int, err error) {
	if dialect == "mysql" && schema != "" { // beginMySQL would create it
		var exists bool
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?`,
			schema).Scan(&exists)
		if err != nil || !exists {
			return 0, err
		}
	}
	err = onOneConnection(ctx, db, dialect, schema, func(conn *sql.Conn, begin beginner) error {
		tx, err := begin(ctx, conn, schema)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if number, _, err = version(ctx, tx); err != nil {
			return fmt.Errorf("migrations: read the schema's version: %w", err)
		}
		return nil
	})
	return number, err
}

// ApplyTo is Apply, but stops after migration to, which is 1 or more. It does nothing if that migration is installed
// already.
func ApplyTo(ctx context.Context, db *sql.DB, dialect, schema string, to int) error {
	all, err := steps(dialect)
	if err != nil {
		return err
	}
	if to < 1 || to > len(all) {
		return fmt.Errorf("migrations: there is no number %d: want 1 to %d", to, len(all))
	}
	return eachStep(ctx, db, dialect, schema, func(installed, _ int) (name, file string, err error) {
		if installed >= to {
			return "", "", nil
		}
		return all[installed].name, all[installed].up, nil
	})
}

// Revert undoes the migrations after to, the latest first. With 0 it removes all tables and everything in them. A
// message whose claim is removed runs again when it is delivered again. Each migration is reverted in a transaction of
// its own, except on MySQL. Stop all workers and relays first: Revert does not wait for them. It fails with ErrNewer if
// a migration is installed that this program does not know.
func Revert(ctx context.Context, db *sql.DB, dialect, schema string, to int) error {
	all, err := steps(dialect)
	if err != nil {
		return err
	}
	if to < 0 || to > len(all) {
		return fmt.Errorf("migrations: there is no number %d: want 0 to %d", to, len(all))
	}
	return eachStep(ctx, db, dialect, schema, func(installed, _ int) (name, file string, err error) {
		switch {
		case installed > len(all):
			return "", "", fmt.Errorf("%w: it is at version %d; the latest known here is %d", ErrNewer, installed,
				len(all))
		case installed <= to:
			return "", "", nil
		}
		return all[installed-1].name, all[installed-1].down, nil
	})
}

// Step is one migration: its name, such as 0001_processed_messages, and the statements that apply and revert it.
type Step struct {
	Name string `json:"name"`
	Up   string `json:"up"`
	Down string `json:"down"`
}

// Steps returns the migrations for db in their order. The number of the first is 1. db is "postgres", "sqlite" or
// "mysql"; any other name is an error.
func Steps(db string) ([]Step, error) {
	all, err := steps(db)
	if err != nil {
		return nil, err
	}
	files := make([]Step, len(all))
	for i, s := range all {
		files[i] = Step{Name: s.name, Up: s.up, Down: s.down}
	}
	return files, nil
}
