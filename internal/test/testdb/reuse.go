package testdb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Tables is Schema with txonce's tables and those that the statements in more create. Later tests, also of other processes, get the same
// schema, as empty as a new one: to create and drop it costs the server more than most tests do. A schema whose definitions a test
// has changed is replaced by a new one; one in which somebody still has a session is left alone. A test that looks at definitions,
// applies migrations, or keeps sessions in processes that it does not wait for wants Schema.
//
// The application_name of the DSN is the schema's name.
func Tables(t testing.TB, dsn, more string) string {
	t.Helper()
	all, err := postgresMigrations()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := t.(*testing.B); ok { // it has a server of its own
		dsn = Schema(t, dsn)
		if err := execute(t, dsn, PostgresTables(t, more)); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	ctx, cancel := cleanUpContext(t)
	defer cancel()
	shelf := shelfOf(dsn, all+more+";")
	name, err := shelf.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test fails if a transaction is still open on the tables. Nobody gets its schema then.
		if err := execute(t, dsn, "SET lock_timeout = '1min'; "+fmt.Sprintf(lockAll, name)); err != nil {
			t.Error(err)
			return
		}
		shelf.giveBack(name)
	})
	return withParameter(withParameter(dsn, "search_path", name), "application_name", name)
}

// lockAll waits for the transactions that use a table of a schema.
const lockAll = `DO $$ DECLARE t regclass; BEGIN
	FOR t IN SELECT oid FROM pg_class WHERE relnamespace = '%s'::regnamespace AND relkind = 'r' ORDER BY oid LOOP
		EXECUTE format('LOCK TABLE %%s IN ACCESS EXCLUSIVE MODE', t);
	END LOOP;
END $$`

// shelf has the schemas with the same tables on one server.
type shelf struct {
	dsn    string
	tables string // the statements that create them
	prefix string // of the schemas' names

	mu     sync.Mutex
	free   []string
	next   int       // the number of the schema to try when none is free
	holder *pgx.Conn // the session whose locks keep other processes from the schemas of this one
}

var (
	shelvesMu sync.Mutex
	shelves   = map[string]*shelf{}
)

func shelfOf(dsn, tables string) *shelf {
	prefix := fmt.Sprintf("reused_%.4x_", sha256.Sum256([]byte(tables)))
	shelvesMu.Lock()
	defer shelvesMu.Unlock()
	s := shelves[dsn+prefix]
	if s == nil {
		s = &shelf{dsn: dsn, tables: tables, prefix: prefix}
		shelves[dsn+prefix] = s
	}
	return s
}

func (s *shelf) giveBack(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, names...)
}

// take returns the name of an empty schema that nobody else uses. Sessions of the test before may still be ending in the schemas that
// were given back last: these stay for later tests.
func (s *shelf) take(ctx context.Context) (name string, err error) {
	var busy []string
	defer func() { s.giveBack(busy...) }()
	for {
		if name, err = s.hold(ctx); err != nil {
			return "", err
		}
		ready := false
		err := admins.do(ctx, s.dsn, func(conn *pgx.Conn) error {
			ready, err = s.empty(ctx, conn, name)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("empty schema %s: %w", name, err)
		}
		if ready {
			return name, nil
		}
		busy = append(busy, name)
	}
}

// hold returns a schema that a test of this process has given back, or the name of one that no process uses.
func (s *shelf) hold(ctx context.Context) (name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) > 0 {
		name, s.free = s.free[0], s.free[1:]
		return name, nil
	}
	if s.holder == nil {
		if s.holder, err = pgx.Connect(ctx, s.dsn); err != nil {
			return "", err
		}
	}
	for {
		s.next++
		name = fmt.Sprint(s.prefix, s.next)
		var got bool
		if err := s.holder.QueryRow(ctx, `SELECT pg_try_advisory_lock(2109, hashtext($1))`, name).Scan(&got); err != nil || got {
			return name, err
		}
	}
}

// describe returns for a schema what its comment says, the definitions that it has, whether somebody has a session there, and the
// statements that empty it. Tables get new files, because deleted rows would leave pages, and a sweep goes through a table page by page.
const describe = `
WITH n AS MATERIALIZED (SELECT oid, nspname, nspacl FROM pg_namespace WHERE nspname = $1),
c AS MATERIALIZED (SELECT c.* FROM pg_class c JOIN n ON relnamespace = n.oid),
r AS MATERIALIZED (SELECT oid, relname FROM c WHERE relkind = 'r')
SELECT coalesce(obj_description(n.oid, 'pg_namespace'), ''),
	md5(concat_ws('/', nspacl,
		(SELECT string_agg(concat_ws(' ', oid, reltype, relowner, relam, reltablespace, relhasindex, relisshared, relpersistence, relkind, relnatts, relchecks,
			relhasrules, relhastriggers, relhassubclass, relrowsecurity, relforcerowsecurity, relreplident, relispartition, relacl, reloptions), ',' ORDER BY oid) FROM c),
		(SELECT string_agg(concat_ws(' ', attrelid, attnum, xmin), ',' ORDER BY attrelid, attnum) FROM pg_attribute WHERE attrelid IN (SELECT oid FROM c)),
		(SELECT string_agg(concat_ws(' ', seqrelid, xmin), ',' ORDER BY seqrelid) FROM pg_sequence WHERE seqrelid IN (SELECT oid FROM c)),
		(SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_constraint WHERE connamespace = n.oid),
		(SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM r)),
		(SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM c)),
		(SELECT string_agg(concat_ws(' ', oid, xmin), ',' ORDER BY oid) FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM r)),
		(SELECT count(*) FROM pg_type WHERE typnamespace = n.oid), (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid))),
	EXISTS (SELECT FROM pg_stat_activity WHERE application_name = n.nspname),
	(SELECT string_agg(format('TRUNCATE %I;', relname), ' ') FROM r WHERE pg_relation_size(oid) > 0),
	(SELECT string_agg(format('SELECT setval(%L, %s, false);', c.relname, s.seqstart), ' ') FROM c JOIN pg_sequence s ON s.seqrelid = c.oid)
FROM n`

// inserts are the rows that the tables have in the beginning.
var inserts = regexp.MustCompile(`(?s)INSERT INTO [^;]*;`)

// empty makes the schema as it is after its creation, and creates it if it is not there. It reports false if somebody uses it.
func (s *shelf) empty(ctx context.Context, conn *pgx.Conn, name string) (ready bool, err error) {
	var comment, definitions, truncates, numbers *string
	var used bool
	look := func() error {
		return conn.QueryRow(ctx, describe, name).Scan(&comment, &definitions, &used, &truncates, &numbers)
	}
	exec := func(sql ...string) error {
		_, err := conn.PgConn().Exec(ctx, "BEGIN; SET LOCAL synchronous_commit = off; "+strings.Join(sql, " ")+"; COMMIT").ReadAll()
		return err
	}
	there := fmt.Sprintf("SET LOCAL search_path = %s;", name)
	switch err := look(); {
	case err == nil && used:
		return false, nil
	case err == nil && *comment == *definitions:
		return true, exec(there, *truncates, strings.Join(inserts.FindAllString(s.tables, -1), " "), *numbers)
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return false, err
	}
	err = errors.Join(
		exec("SET LOCAL lock_timeout = '1min'; DROP SCHEMA IF EXISTS "+name+" CASCADE; CREATE SCHEMA "+name+";", there, s.tables),
		look(),
	)
	if err != nil {
		return false, err
	}
	return true, exec("COMMENT ON SCHEMA " + name + " IS '" + *definitions + "'")
}
