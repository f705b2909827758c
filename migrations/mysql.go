package migrations

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// mysqlStep applies one number on MySQL or MariaDB. DDL commits by itself there, so a number is not a transaction. A
// named lock of the server makes other processes wait, and after a crash all statements of the number run again.
type mysqlStep struct {
	*sql.Conn
	end   context.Context // for statements that must not be cancelled
	lock  string
	ended bool
}

const (
	mysqlLock   = `SELECT GET_LOCK(?, 10)`
	mysqlUnlock = `SELECT RELEASE_LOCK(?)`
)

// mysqlLockName contains the database, because all databases of a server share the names of locks. The hash, which
// keeps the name short, is computed here, because MySQL 9 has no function SHA1.
func mysqlLockName(database string) string {
	return fmt.Sprintf("txonce.%x", sha1.Sum([]byte(database)))
}

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
	t := &mysqlStep{Conn: conn, end: context.WithoutCancel(ctx), lock: mysqlLockName(database.String)}
	for { // each wait is short, so that no statement runs for long after the end of ctx
		var locked sql.NullBool
		if err := conn.QueryRowContext(ctx, mysqlLock, t.lock).Scan(&locked); err != nil {
			return nil, fmt.Errorf("migrations: lock: %w", err)
		}
		if locked.Bool {
			break
		}
	}
	// If autocommit is off, the session may have a snapshot that is older than the lock.
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

// ExecContext runs the statements of a file one by one, so that the DSN does not need multiStatements.
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

// foreign returns an error if statement creates a table whose name belongs to another table already, which IF NOT
// EXISTS would ignore.
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
		return fmt.Errorf("table %s exists already, and its comment does not say that it belongs to txonce", found[1])
	}
	return err
}

// split returns the statements of a file. Each ends with a semicolon at the end of a line. Comment lines are dropped.
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

// finish ends the transaction that is open if autocommit is off, and releases the lock.
func (t *mysqlStep) finish(how string) error {
	t.ended = true
	_, err := t.Conn.ExecContext(t.end, how)
	var unlocked sql.NullBool
	unlock := t.QueryRowContext(t.end, mysqlUnlock, t.lock).Scan(&unlocked)
	if err != nil || unlock != nil || !unlocked.Bool {
		// a connection with the lock must not go back to the pool
		_ = t.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}
