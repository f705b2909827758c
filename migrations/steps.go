package migrations

import (
	"context"
	"database/sql"
	"fmt"
)

// Installed returns the highest number that is installed; 0: none. Its arguments are those of Apply. It changes nothing.
func Installed(ctx context.Context, db *sql.DB, dialect, schema string) (number int, err error) {
	if dialect == "mysql" && schema != "" { // beginMySQL would create it
		var exists bool
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?`, schema).Scan(&exists)
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

// ApplyTo does what Apply does, but only up to number to. It does nothing if the database is there already, or further.
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

// Revert removes the numbers above to, the highest first: with 0, all tables and everything that is in them. Claims that are gone cannot
// stop a message that is delivered again. Each number is a transaction of its own, except on MySQL. Stop all workers and relays first:
// Revert does not know about them. It fails with ErrNewer if a number is installed that this program does not know.
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
			return "", "", fmt.Errorf("%w: it is at version %d; the latest known here is %d", ErrNewer, installed, len(all))
		case installed <= to:
			return "", "", nil
		}
		return all[installed-1].name, all[installed-1].down, nil
	})
}

// Step is one number: the name of its file, and the statements of both directions.
type Step struct {
	Name string `json:"name"`
	Up   string `json:"up"`
	Down string `json:"down"`
}

// Steps returns the files for db in their order. The number of the first is 1.
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
