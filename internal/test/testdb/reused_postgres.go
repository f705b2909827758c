package testdb

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/txonce/txonce/internal/test/dsn"
)

// Reused is Tables in a schema that an earlier test of this process has used, if there is one. The test may change its
// tables. What it finds differs from Tables in one way: sequences go on where the earlier test has left them. Use
// Tables where processes are killed: the server may still execute what they have sent when the next test has begun.
func Reused(t testing.TB, server, more string) string {
	t.Helper()
	if _, ok := t.(*testing.B); ok {
		return Tables(t, server, more)
	}
	tables, err := allMigrations("postgres")
	if err != nil {
		t.Fatal(err)
	}
	m := postgresPlaces{dsn: server, tables: tables + more}
	return dsn.WithPostgres(server, "search_path", reuse(t, server, "reused_", m.tables, m))
}

// ReusedPgBouncer is PgBouncer with txonce's tables and those that the statements in more create, in a schema like that
// of Reused. The test must not alter its role: sessions of the pooler would keep the role's old settings.
func ReusedPgBouncer(t testing.TB, more string) (pooled, direct string) {
	t.Helper()
	pooler, server := postgres(t, "TXONCE_PGBOUNCER", "PgBouncer"), Postgres(t)
	tables, err := allMigrations("postgres")
	if err != nil {
		t.Fatal(err)
	}
	m := postgresPlaces{dsn: server, tables: tables + more, role: true}
	name := reuse(t, server, "pooled_", m.tables, m)
	return withUser(t, pooler, name), withUser(t, server, name)
}

// postgresPlaces makes schemas.
type postgresPlaces struct {
	dsn, tables string
	role        bool // make a role of the same name too, whose search_path is the schema
}

// keepers are sessions that hold the reservations of this process, by DSN.
var keepers = struct {
	mu   sync.Mutex
	conn map[string]session
}{conn: map[string]session{}}

func (m postgresPlaces) reserve(ctx context.Context, name string) (ok bool, err error) {
	keepers.mu.Lock()
	defer keepers.mu.Unlock()
	conn, ok := keepers.conn[m.dsn]
	if !ok {
		if conn, err = connect(ctx, m.dsn); err != nil {
			return false, err
		}
		keepers.conn[m.dsn] = conn
	}
	// name needs no quotes
	locked, err := conn.value(ctx, `SELECT pg_try_advisory_lock(hashtextextended('txonce testdb `+name+`', 0))`)
	return locked == "true", err
}

func (m postgresPlaces) create(ctx context.Context, name string) (place, error) {
	sql := "SET LOCAL lock_timeout = '1min'; SET LOCAL synchronous_commit = off; SET LOCAL client_min_messages = warning; " +
		"DROP SCHEMA IF EXISTS " + name + " CASCADE;"
	if m.role {
		sql += "DO $$ BEGIN IF to_regrole('" + name + "') IS NULL THEN " +
			"CREATE ROLE " + name + " SUPERUSER LOGIN; ALTER ROLE " + name + " SET search_path = " + name +
			"; END IF; END $$;"
	}
	sql += "CREATE SCHEMA " + name + "; SET LOCAL search_path = " + name + ";" + m.tables
	p := place{name: name}
	err := transact(ctx, m.dsn, func(s session) (err error) {
		if err = s.exec(ctx, sql); err == nil {
			p.made, err = s.value(ctx, tablesOf(name))
		}
		return err
	})
	return p, err
}

// empty truncates a table that was made without rows, so that the next test starts with its first page, as with a new
// table. Rows that create inserts are deleted and inserted again, which costs less.
func (m postgresPlaces) empty(ctx context.Context, p place) (same bool, err error) {
	const lock = "SET LOCAL lock_timeout = '1min'; SET LOCAL synchronous_commit = off; " +
		"DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('%s') AND relkind = 'r' ORDER BY oid LOOP " +
		"EXECUTE format('LOCK TABLE %%s IN ACCESS EXCLUSIVE MODE', t); END LOOP; END $$;"
	const empty = "SET LOCAL session_replication_role = replica; SET LOCAL search_path = %s; " +
		"DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT oid FROM pg_class WHERE relnamespace = '%[1]s'::regnamespace AND relkind = 'r' LOOP " +
		"IF t::text = ANY ('{%[2]s}') AND pg_relation_size(t) <= 65536 THEN EXECUTE format('DELETE FROM %%s', t); " +
		"ELSIF pg_relation_size(t) > 0 THEN EXECUTE format('TRUNCATE %%s', t); END IF; END LOOP; END $$;"
	err = transact(ctx, m.dsn, func(s session) error {
		if err := s.exec(ctx, fmt.Sprintf(lock, p.name)); err != nil {
			return err
		}
		made, err := s.value(ctx, tablesOf(p.name))
		if same = made == p.made; err != nil || !same {
			return err
		}
		var tables []string
		var statements string
		for _, i := range inserts(m.tables) {
			tables, statements = append(tables, i.table), statements+i.statement
		}
		return s.exec(ctx, fmt.Sprintf(empty, p.name, strings.Join(tables, ","))+statements)
	})
	return same, err
}

// tablesOf is a query for a text that changes with each change to the definition of something in the schema, because
// the rows of the catalogue then have another xmin. TRUNCATE changes the xmin of a table and of its indexes, so their
// columns are compared instead. Each test runs this query, so it reads the catalogue by its indexes: ANY(ARRAY(…)) is
// quick, and joins are not.
func tablesOf(schema string) string {
	return `
WITH place AS (SELECT oid FROM pg_namespace WHERE nspname = '` + schema + `'),
own AS MATERIALIZED (SELECT * FROM pg_class WHERE relnamespace = (SELECT oid FROM place)),
rows (kind, id, version) AS (
	SELECT 'class', oid::text, concat_ws(' ', relname, relkind, relowner, relam, relnatts, relchecks, relpersistence, relreplident, relhasindex,
		relhasrules, relhastriggers, relhassubclass, relrowsecurity, relforcerowsecurity, relacl, reloptions) FROM own
	UNION ALL SELECT 'column', attrelid || ' ' || attnum, xmin::text FROM pg_attribute
		WHERE attrelid = ANY(ARRAY(SELECT oid FROM own WHERE relkind = 'r')) AND attnum > 0
	UNION ALL SELECT 'default', oid::text, xmin::text FROM pg_attrdef WHERE adrelid = ANY(ARRAY(SELECT oid FROM own))
	UNION ALL SELECT 'constraint', oid::text, xmin::text FROM pg_constraint WHERE conrelid = ANY(ARRAY(SELECT oid FROM own))
	UNION ALL SELECT 'trigger', oid::text, xmin::text FROM pg_trigger WHERE tgrelid = ANY(ARRAY(SELECT oid FROM own))
	UNION ALL SELECT 'sequence', seqrelid::text, xmin::text FROM pg_sequence WHERE seqrelid = ANY(ARRAY(SELECT oid FROM own))
	UNION ALL SELECT 'publication', oid::text, xmin::text FROM pg_publication_rel WHERE prrelid = ANY(ARRAY(SELECT oid FROM own))
	UNION ALL SELECT 'function', oid::text, xmin::text FROM pg_proc WHERE pronamespace = (SELECT oid FROM place)
	UNION ALL SELECT 'type', oid::text, xmin::text FROM pg_type WHERE typnamespace = (SELECT oid FROM place) AND typrelid = 0 AND typelem = 0
	UNION ALL SELECT 'schema', oid::text, xmin::text FROM pg_namespace WHERE nspname = '` + schema + `'
	UNION ALL SELECT 'role', r.oid || ' ' || array_to_string(setconfig, ' '), r.xmin::text FROM pg_authid r
		LEFT JOIN pg_db_role_setting ON setrole = r.oid WHERE rolname = '` + schema + `'
) SELECT md5(string_agg(concat_ws(' ', kind, id, version), ',' ORDER BY kind, id)) FROM rows`
}
