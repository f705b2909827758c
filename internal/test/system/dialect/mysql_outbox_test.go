package dialect_test

import (
	"database/sql"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

// No statement of the outbox scans a whole table that may hold a million messages. Only counting delayed and parked
// messages does, in an index with few columns.
func TestMySQLOutboxStatementsFindTheirRows(t *testing.T) {
	db, err := sql.Open("mysql", testdb.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Apply(t.Context(), db, "mysql", ""); err != nil {
		t.Fatal(err)
	}
	for _, fill := range []string{ // the server shows no plan for tables with fewer than two rows
		"INSERT INTO outbox_messages (shard, id, topic, `key`, key_hash, payload, size, enqueued_at)\n" + many,
		"INSERT INTO outbox_delayed (shard, id, topic, `key`, key_hash, payload, size, enqueued_at, not_before)\n" +
			strings.Replace(many, ", 1, 1\n", ", 1, 1, i\n", 1),
		"INSERT INTO outbox_parked (shard, id, topic, `key`, key_hash, payload, size, enqueued_at, seq, attempts, error, parked_at)\n" + strings.Replace(many, ", 1, 1\n", ", 1, 1, i, 1, 'x', 1\n", 1),
		`INSERT INTO outbox_held (shard, key_hash, from_seq, until) SELECT shard, key_hash, seq, 1 FROM outbox_messages`,
		"INSERT INTO outbox_sent (sent_at, seq, id, topic, payload, enqueued_at) SELECT seq, seq, id, topic, payload, 1 FROM outbox_messages",
		`INSERT INTO txonce_relays (owner, name, until) SELECT LEFT(key_hash, 16), 'x', 1 FROM outbox_messages LIMIT 20`,
		`ANALYZE TABLE outbox_messages, outbox_delayed, outbox_parked, outbox_held, outbox_sent`,
	} {
		if _, err := db.ExecContext(t.Context(), fill); err != nil {
			t.Fatalf("%v\n%s", err, fill)
		}
	}
	counts := []string{"CountOthers"}
	statements := reflect.ValueOf(dialect.NewMySQLOutbox(""))
	for i := range statements.NumField() {
		name := statements.Type().Field(i).Name
		query := statements.Field(i).String()
		switch name {
		case "Enqueue", "EnqueueRow", "Delay", "DelayRow", "Settings": // these read no messages
			continue
		}
		steps, err := explainedMySQL(db, query)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, query)
			continue
		}
		large := aliases(strings.ReplaceAll(query, " AS ", " "))
		for _, s := range steps {
			if large[s.table] && (s.kind == "ALL" || s.kind == "index" && !slices.Contains(counts, name)) {
				t.Errorf("%s: table %s, type %s, key %s\n%s", name, s.table, s.kind, s.key, query)
			}
		}
	}
}

const many = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)
SELECT i % 64, i, 't', i, UNHEX(SHA2(i, 256)), 'x', 1, 1
FROM n`

type mysqlStep struct{ table, kind, key string }

// MySQL lists the table that a statement inserts into, of which it reads nothing.

func explainedMySQL(db *sql.DB, query string) (steps []mysqlStep, err error) {
	query = strings.NewReplacer("{shard}", "1", "{counted}", "250").Replace(query)
	var args []any
	for rest, at := query, 0; ; rest = rest[at+1:] {
		if at = strings.IndexByte(rest, '?'); at < 0 {
			break
		}
		switch {
		case strings.HasSuffix(rest[:at], "JSON_TABLE("):
			args = append(args, "[[1, 1], [2, 2]]")
		case strings.HasSuffix(rest[:at], "topic = "):
			args = append(args, "t")
		default:
			args = append(args, 1)
		}
	}
	rows, err := db.Query("EXPLAIN FORMAT=TRADITIONAL "+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		of := func(name string) string { return values[slices.Index(columns, name)].String }
		if of("select_type") != "INSERT" {
			steps = append(steps, mysqlStep{of("table"), of("type"), of("key")})
		}
	}
	return steps, rows.Err()
}
