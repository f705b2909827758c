package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// ReusedMySQL is MySQLTables in a database that an earlier test of this process has used, if there is one. The test may
// change its tables. As with Reused, AUTO_INCREMENT goes on where the earlier test has left it, and no processes should
// be killed.
func ReusedMySQL(t testing.TB, more string) (dsn string) {
	t.Helper()
	if _, ok := t.(*testing.B); ok {
		return MySQLTables(t, more)
	}
	tables, err := allMigrations("mysql")
	if err != nil {
		t.Fatal(err)
	}
	at := mysqlServer(t)
	m := mysqlPlaces{at.With("multiStatements=true").String(), tables + more}
	at.Database = reuse(t, m.dsn, "reused_", m.tables, m)
	return at.String()
}

// mysqlPlaces makes databases.
type mysqlPlaces struct{ dsn, tables string }

// mysqlAdmins are pools for set-up and clean-up, by DSN, each with a connection that holds the reservations of this
// process.
var mysqlAdmins sync.Map

type mysqlAdmin struct {
	*sql.DB
	keeper *sql.Conn
	err    error
}

func (m mysqlPlaces) admin(ctx context.Context) (*mysqlAdmin, error) {
	open, _ := mysqlAdmins.LoadOrStore(m.dsn, sync.OnceValue(func() *mysqlAdmin {
		db, err := sql.Open("mysql", m.dsn)
		if err != nil {
			return &mysqlAdmin{err: err}
		}
		db.SetMaxIdleConns(8)
		keeper, err := db.Conn(context.WithoutCancel(ctx))
		return &mysqlAdmin{db, keeper, err}
	}))
	a := open.(func() *mysqlAdmin)()
	return a, a.err
}

func (m mysqlPlaces) reserve(ctx context.Context, name string) (ok bool, err error) {
	admin, err := m.admin(ctx)
	if err != nil {
		return false, err
	}
	err = admin.keeper.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('txonce testdb ', ?), 0)", name).Scan(&ok)
	return ok, err
}

func (m mysqlPlaces) create(ctx context.Context, name string) (p place, err error) {
	err = m.on(ctx, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+"; CREATE DATABASE "+name+"; USE "+name+";"+
			m.tables); err != nil {
			return err
		}
		tables, made, err := mysqlTables(ctx, conn, name)
		if err != nil {
			return err
		}
		p = place{name: name, made: made}
		p.rows, err = mysqlChecksums(ctx, conn, name, tables)
		return err
	})
	return p, err
}

// empty leaves tables alone whose rows are as create has inserted them.
func (m mysqlPlaces) empty(ctx context.Context, p place) (same bool, err error) {
	err = m.on(ctx, func(conn *sql.Conn) error {
		tables, made, err := mysqlTables(ctx, conn, p.name)
		if err != nil || made != p.made {
			return err
		}
		if _, err := conn.ExecContext(ctx, "USE "+p.name+"; LOCK TABLES "+strings.Join(tables, " WRITE, ")+
			" WRITE"); err != nil {
			return err
		}
		rows, err := mysqlChecksums(ctx, conn, p.name, tables)
		if err != nil {
			return err
		}
		tables = slices.DeleteFunc(tables, func(table string) bool { return rows[table] == p.rows[table] })
		var sql strings.Builder
		for _, table := range tables {
			sql.WriteString("DELETE FROM " + table + ";")
		}
		sql.WriteString("UNLOCK TABLES;")
		for _, i := range inserts(m.tables) {
			if slices.Contains(tables, i.table) {
				sql.WriteString(i.statement)
			}
		}
		_, err = conn.ExecContext(ctx, sql.String())
		same = err == nil
		return err
	})
	return same, err
}

// on runs f on a connection, which is closed if f fails.
func (m mysqlPlaces) on(ctx context.Context, f func(*sql.Conn) error) error {
	admin, err := m.admin(ctx)
	if err != nil {
		return err
	}
	conn, err := admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET lock_wait_timeout = 60"); err != nil {
		return err
	}
	if err := f(conn); err != nil {
		return errors.Join(err, conn.Raw(func(any) error { return driver.ErrBadConn }))
	}
	return nil
}

// mysqlTables returns the names of the tables and views in a database, and their definitions.
func mysqlTables(ctx context.Context, conn *sql.Conn, name string) (tables []string, definitions string, err error) {
	var list string
	err = conn.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(TABLE_NAME ORDER BY TABLE_NAME), '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", name).Scan(&list)
	if err != nil || list == "" {
		return nil, "", err
	}
	tables = strings.Split(list, ",")
	rows, err := conn.QueryContext(ctx, "SHOW CREATE TABLE "+name+"."+strings.Join(tables,
		"; SHOW CREATE TABLE "+name+"."))
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, "", err
		}
		for rows.Next() {
			values := make([]sql.RawBytes, len(columns)) // a view has more of them
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return nil, "", err
			}
			definitions += autoIncrement.ReplaceAllString(string(values[1]), "") + "\n"
		}
	}
	return tables, definitions, rows.Err()
}

var autoIncrement = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// mysqlChecksums returns a checksum of the rows of each table.
func mysqlChecksums(ctx context.Context, conn *sql.Conn, name string, tables []string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, "CHECKSUM TABLE "+name+"."+strings.Join(tables, ", "+name+"."))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sums := map[string]string{}
	for rows.Next() {
		var table, sum string
		if err := rows.Scan(&table, &sum); err != nil {
			return nil, err
		}
		sums[strings.TrimPrefix(table, name+".")] = sum
	}
	return sums, rows.Err()
}
