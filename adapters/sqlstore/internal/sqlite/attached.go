package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

const (
	databases = `PRAGMA database_list`

	// journals takes longer than databases.
	journals = `SELECT l.file, j.journal_mode, s.synchronous
FROM pragma_database_list AS l, pragma_journal_mode(l.name) AS j, pragma_synchronous(l.name) AS s WHERE l.file <> ''`
)

// levels are the values of PRAGMA synchronous.
var levels = [...]string{"off", "normal", "full", "extra"}

// checkAttached refuses a connection on which the claims and the effects may be in different files that SQLite does not
// commit together. SQLite does so only with a rollback journal on disk for each file: with any other journal_mode, and
// with synchronous off, it commits one file after the other, that of the claims first. A database in memory does not
// count.
func checkAttached(ctx context.Context, q engine.Queryer) error {
	var files []string
	claimed := false // the claims are in a file
	err := engine.Query(ctx, q, databases).Each(func(row engine.Row) error {
		var n int
		var name string
		var file sql.NullString
		err := row.Scan(&n, &name, &file)
		if file.String != "" {
			files = append(files, file.String)
			claimed = claimed || name == "main"
		}
		return err
	})
	if err == nil && claimed && len(files) > 1 {
		err = engine.Query(ctx, q, journals).Each(func(row engine.Row) error {
			var file, journal string
			var synchronous int
			if err := row.Scan(&file, &journal, &synchronous); err != nil ||
				synchronous > 0 && slices.Contains([]string{"delete", "truncate", "persist"}, journal) {
				return err
			}
			return notAtomic{fmt.Errorf("%w: the files %s are on one connection (ATTACH), and %s has journal_mode %s and synchronous %s: SQLite would not "+
				"commit claims and effects in different files together; set journal_mode to truncate and synchronous to full for each file, or use one file",
				dedup.ErrNotDurable, strings.Join(files, ", "), file, journal, levels[synchronous])}
		})
	}
	if err == nil || errors.Is(err, dedup.ErrNotDurable) {
		return err
	}
	return engine.Database.Errorf("sqlstore: read which databases are attached: %w", err)
}

// notAtomic is the error of checkAttached. It counts as something that a handler has left on its connection.
type notAtomic struct{ error }

func (e notAtomic) Is(target error) bool { return target == engine.ErrTemporary }

func (e notAtomic) Unwrap() error { return e.error }
