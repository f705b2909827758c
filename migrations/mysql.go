package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// mysqlStep is one number's turn on MySQL or MariaDB. DDL commits by itself there, so that a number is not a transaction: a
// lock of the server keeps other nodes out, and after a crash every statement of the number runs again.
type mysqlStep struct {
	*sql.Conn
	end   context.Context // of what must not be cut short
	ended bool
}

// The lock's name says of which database, because the server has one set of names for all of them.
const (
	mysqlLock   = `SELECT GET_LOCK(CONCAT('txonce.', SHA1(DATABASE())), 10)`
	mysqlUnlock = `SELECT RELEASE_LOCK(CONCAT('txonce.', SHA1(DATABASE())))`
)

func beginMySQL(ctx context.Context, conn *sql.Conn, schema string) (_ transaction, err error) {
	if schema != "" {
		quoted := "`" + strings.ReplaceAll(schema, "`", "``") + "`"
		for _, q := range []string{"CREATE DATABASE IF NOT EXISTS " + quoted, "USE " + quoted} {
			if _, err := conn.ExecContext(ctx, q); err != nil {
				return nil, fmt.Errorf("migrations: %s: %w", q, err)
			}
		}
	}
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	if !database.Valid {
		return nil, errors.New("migrations: no database is chosen: name one in the DSN, or as Apply's schema")
	}
	for { // each wait is short, so that the end of ctx leaves no statement behind for long
		var locked sql.NullBool
		if err := conn.QueryRowContext(ctx, mysqlLock).Scan(&locked); err != nil {
			return nil, fmt.Errorf("migrations: lock: %w", err)
		}
		if locked.Bool {
			break
		}
	}
	t := &mysqlStep{Conn: conn, end: context.WithoutCancel(ctx)}
	// Where autocommit is off this session may have read something, and then sees the past.
	if _, err := conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		return nil, errors.Join(fmt.Errorf("migrations: begin: %w", err), t.Rollback())
	}
	return t, nil
}

func (t *mysqlStep) installed(ctx context.Context) (yes bool, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'txonce_schema'`).Scan(&yes)
	return yes, err
}

// ExecContext runs a file, which is several statements, and needs no multiStatements for that.
func (t *mysqlStep) ExecContext(ctx context.Context, file string, _ ...any) (done sql.Result, err error) {
	statements := split(file)
	for _, q := range statements {
		if err := t.foreign(ctx, q); err != nil {
			return nil, err
		}
	}
	for _, q := range statements {
		if done, err = t.Conn.ExecContext(ctx, q); err != nil {
			return nil, err
		}
	}
	return done, nil
}

var createTable = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (\w+)`)

// foreign reports a table of this name that is not ours, which IF NOT EXISTS would pass over.
func (t *mysqlStep) foreign(ctx context.Context, statement string) error {
	found := createTable.FindStringSubmatch(statement)
	if found == nil {
		return nil
	}
	var comment string
	err := t.QueryRowContext(ctx, `SELECT table_comment FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ?`, found[1]).Scan(&comment)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil && comment != "txonce":
		return fmt.Errorf("there is a table %s already, and its comment does not say that it is txonce's", found[1])
	}
	return err
}

// split cuts a file into its statements. Each ends with a semicolon at the end of a line; lines that are comments are dropped.
func split(file string) (statements []string) {
	var b strings.Builder
	for line := range strings.Lines(file) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "--") {
			continue
		}
		b.WriteString(line)
		if strings.HasSuffix(text, ";") {
			statements = append(statements, strings.TrimSuffix(strings.TrimSpace(b.String()), ";"))
			b.Reset()
		}
	}
	if rest := strings.TrimSpace(b.String()); rest != "" {
		statements = append(statements, rest)
	}
	return statements
}

func (t *mysqlStep) Commit() error { return t.finish(`COMMIT`) }

func (t *mysqlStep) Rollback() error {
	if t.ended {
		return nil
	}
	return t.finish(`ROLLBACK`)
}

// finish ends what an autocommit that is off has begun, and unlocks.
func (t *mysqlStep) finish(how string) error {
	t.ended = true
	_, err := t.Conn.ExecContext(t.end, how)
	var unlocked sql.NullBool
	unlock := t.QueryRowContext(t.end, mysqlUnlock).Scan(&unlocked)
	if err != nil || unlock != nil || !unlocked.Bool {
		_ = t.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not get it back with the lock
	}
	return err
}
