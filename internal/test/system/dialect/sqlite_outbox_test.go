package dialect_test

import (
	"database/sql"
	"reflect"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/migrations"
)

// No statement of the outbox scans a whole table that may hold a million messages. Only counting delayed and parked
// messages does.
func TestSQLiteOutboxStatementsFindTheirRows(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/test.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	counted := map[string]bool{"outbox_delayed": true, "outbox_parked": true} // Count reads all rows of these
	statements := reflect.ValueOf(dialect.NewSQLiteOutbox())
	for i := range statements.NumField() {
		name := statements.Type().Field(i).Name
		query := statements.Field(i).String()
		steps, err := explained(db, query)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, query)
			continue
		}
		tables := aliases(query)
		for _, step := range steps {
			what, scan := strings.CutPrefix(step, "SCAN ")
			alias, _, _ := strings.Cut(what, " ")
			if scan && tables[alias] && !(name == "Count" && counted[alias]) &&
				!strings.Contains(step, "USING COVERING INDEX") {
				t.Errorf("%s: %s\n%s", name, step, query)
			}
		}
	}
}

func explained(db *sql.DB, query string) (steps []string, err error) {
	rows, err := db.Query(`EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))[:parameters(query)]...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, rows.Err()
}

// parameters returns the highest parameter number in query, or the number of parameters if they have none.
func parameters(query string) (n int) {
	for i := range 10 {
		if strings.Contains(query, "?"+string(rune('0'+i))) {
			n = i
		}
	}
	if n == 0 {
		return strings.Count(query, "?")
	}
	return n
}

// aliases returns the names that query uses for large tables.
func aliases(query string) map[string]bool {
	found := map[string]bool{}
	words := strings.FieldsFunc(query, func(r rune) bool { return strings.ContainsRune(" \n\t(),", r) })
	for i, w := range words {
		switch w {
		case "outbox_messages", "outbox_parked", "outbox_delayed", "outbox_sent":
			found[w] = true
			if i+1 < len(words) {
				found[words[i+1]] = true
			}
		}
	}
	return found
}
