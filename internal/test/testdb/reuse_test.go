package testdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
)

const ownTable = `CREATE TABLE effects (name text NOT NULL)`

// contents returns the rows of all tables and sequences of the connection's schema, without times.
func contents(t *testing.T, conn *pgx.Conn) (all []string) {
	t.Helper()
	names := strings.Split(one(t, conn, `SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'S')`), " ")
	all = append(all, "pages: "+one(t, conn, `SELECT string_agg(relname || pg_relation_size(oid), ' ' ORDER BY relname) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`))
	for _, name := range names {
		rows := one(t, conn, `SELECT coalesce(string_agg(row::text, ' ' ORDER BY row::text), '')
			FROM (SELECT to_jsonb(x) - 'applied_at' - 'log_cnt' AS row FROM (SELECT * FROM `+name+`) AS x) AS rows`)
		all = append(all, name+": "+rows)
	}
	return all
}

func one(t *testing.T, conn *pgx.Conn, sql string) (s string) {
	t.Helper()
	query(t, conn, sql, &s)
	return s
}

// A reused schema is as empty as a new one, whatever the test before it has done.
func TestTablesAreAsNew(t *testing.T) {
	for name, server := range map[string]func(testing.TB) string{"15": testdb.Postgres, "18": testdb.Postgres18} {
		t.Run(name, func(t *testing.T) {
			dsn := server(t)
			fresh := connect(t, testdb.Schema(t, dsn))
			if _, err := fresh.PgConn().Exec(t.Context(), testdb.PostgresTables(t, ownTable)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			want := contents(t, fresh)
			definitions := one(t, fresh, definitionsOf)
			reused := 0
			used := map[string]bool{}
			for _, change := range []string{
				`SELECT 1`,
				`INSERT INTO effects VALUES ('x'); UPDATE txonce_shards SET token = 7; DELETE FROM txonce_sweep; SELECT nextval('outbox_seq')`,
				`UPDATE txonce_schema SET version = version + 100`,
				`SELECT setval('outbox_seq', 99); INSERT INTO outbox_held (shard, key, from_seq, until) VALUES (1, 'k', 1, now())`,
				`ALTER TABLE dead_letters ADD COLUMN more text`,
				`ALTER TABLE dead_letters ALTER COLUMN cause DROP NOT NULL`,
				`ALTER TABLE effects ADD CHECK (name <> 'x')`,
				`ALTER TABLE outbox_sent SET (fillfactor = 20)`,
				`CREATE TABLE more (n int)`,
				`DROP TABLE effects`,
				`DROP INDEX dead_letters_consumer`,
				`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER x BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION f()`,
				`ALTER SEQUENCE outbox_seq CACHE 20`,
				`GRANT SELECT ON effects TO PUBLIC`,
				`CREATE RULE x AS ON INSERT TO effects DO INSTEAD NOTHING`,
				`INSERT INTO effects SELECT repeat('x', 1000) FROM generate_series(1, 5000); UPDATE txonce_shards SET token = n FROM generate_series(1, 100) AS n`,
				`TRUNCATE txonce_windows, dead_letters`,
			} {
				t.Run("test", func(t *testing.T) {
					conn := connect(t, testdb.Tables(t, dsn, ownTable))
					schema := one(t, conn, `SELECT current_schema()::text`)
					if used[schema] {
						reused++
					}
					used[schema] = true
					if got := contents(t, conn); !slices.Equal(got, want) {
						t.Errorf("%s has\n%s\na new schema has\n%s", schema, strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if got := one(t, conn, definitionsOf); got != definitions {
						t.Errorf("%s is defined as\n%s\na new schema is\n%s", schema, got, definitions)
					}
					if _, err := conn.PgConn().Exec(t.Context(), change).ReadAll(); err != nil {
						t.Fatal(err)
					}
				})
			}
			if reused == 0 {
				t.Error("no schema was used twice")
			}
		})
	}
}

const definitionsOf = `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
	SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, c.reloptions, c.relacl, c.relhastriggers, c.relhasrules) AS line
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace AND NOT a.attisdropped AND c.relkind <> 't' AND a.attnum > 0
	UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
	UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
	UNION ALL SELECT concat(seqcache, ' ', seqstart) FROM pg_sequence WHERE seqrelid = 'outbox_seq'::regclass) AS lines`

// A schema in which somebody still has a session is not handed out.
func TestTablesInUseAreLeftAlone(t *testing.T) {
	dsn := testdb.Postgres(t)
	var left *pgx.Conn
	t.Run("leaves a session", func(t *testing.T) {
		var err error
		if left, err = pgx.Connect(t.Context(), testdb.Tables(t, dsn, ownTable)); err != nil {
			t.Fatal(err)
		}
	})
	defer left.Close(t.Context())
	t.Run("later", func(t *testing.T) {
		conn := connect(t, testdb.Tables(t, dsn, ownTable))
		if name := `SELECT current_schema()::text`; one(t, conn, name) == one(t, left, name) {
			t.Error("it got the schema of a session that has not ended")
		}
	})
}
