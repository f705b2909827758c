package dialect_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/migrations"
)

// The values are in the order of the text, and a condition that is not asked for is not in it.
func TestChoose(t *testing.T) {
	f := dialect.LetterFilter{
		ID: "id", Consumer: "consumer", Cause: "cause", Topic: "topic", MessageID: "message", Tenant: "tenant",
		Error: "error",
		Since: 1, Until: 2, AfterFirst: 3, AfterID: "after",
	}
	all := []any{
		"id", "consumer", "cause", "topic", "message", "tenant", "error", int64(1), int64(2), int64(3),
		int64(3), "after",
	}
	for name, op := range map[string]dialect.Operator{
		"postgres": dialect.NewPostgresOperator(""), "mysql": dialect.NewMySQLOperator(""),
		"sqlite": dialect.NewSQLiteOperator(),
	} {
		query, values := op.Choose("{index}{where} LIMIT ?", f)
		want := all
		if name == "mysql" { // by the index, and byte by byte
			want = slices.Insert(slices.Clone(all), 4, any("message"))
		}
		if !slices.Equal(values, want) {
			t.Errorf("%s: %v, want %v", name, values, want)
		}
		if name == "postgres" && !strings.HasSuffix(query, "LIMIT $13") {
			t.Errorf("%s: %s", name, query)
		}
		if query, values = op.Choose("{where}", dialect.LetterFilter{}); query != "1 = 1" || len(values) != 0 {
			t.Errorf("%s: no condition: %s, %v", name, query, values)
		}
		if query, _ = op.Choose("{where}", dialect.LetterFilter{Owner: "o", Cause: "r"}); strings.Contains(query,
			"d.topic") || strings.Count(query, "AND") != 1 {
			t.Errorf("%s: two conditions: %s", name, query)
		}
	}
}

// SQLite reads the letters of a consumer in the order of the index, so that it stops at the limit.
func TestSQLiteLettersAreNotSorted(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/test.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	op := dialect.NewSQLiteOperator()
	for _, f := range []dialect.LetterFilter{
		{Owner: "billing"},
		{Consumer: "billing"},
		{Consumer: "billing", Cause: "exhausted", Topic: "orders", Tenant: "a", Error: "502"},
		{Consumer: "billing", AfterFirst: 1, AfterID: "00"},
		{Consumer: "billing", Since: 1, Until: 2},
	} {
		for _, statement := range []string{dialect.NewSQLite().DeadLetters, op.MarkLetters} {
			query, _ := op.Choose(statement, f)
			steps, err := explained(db, query)
			if err != nil {
				t.Fatalf("%v\n%s", err, query)
			}
			plan := strings.Join(steps, "\n")
			if !strings.Contains(plan, "SEARCH d USING INDEX dead_letters_consumer (consumer=?") &&
				!strings.Contains(plan, "SEARCH d USING COVERING INDEX dead_letters_consumer (consumer=?") ||
				strings.Contains(plan, "USE TEMP B-TREE FOR ORDER BY") || strings.Contains(plan, "SCAN d ") {
				t.Errorf("%+v:\n%s\n%s", f, plan, query)
			}
		}
	}
	query, _ := op.Choose(dialect.NewSQLite().DeadLetters,
		dialect.LetterFilter{Consumer: "billing", MessageID: "order-1", Tenant: "a"})
	if steps, err := explained(db, query); err != nil ||
		!strings.HasPrefix(steps[0], "SEARCH d USING INDEX dead_letters_message (message_id=?)") {
		t.Errorf("letters of a key: %v, %v\n%s", steps, err, query)
	}
	for _, query := range []string{
		op.NextOwner, op.Letters, op.ResultsOf, op.Waiting, op.Counts, op.NextLetter,
		op.FreeAt, op.Failures,
	} {
		steps, err := explained(db, query)
		if err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
		for _, step := range steps {
			if strings.HasPrefix(step, "SCAN ") && !strings.HasPrefix(step, "SCAN part") {
				t.Errorf("%s\n%s", step, query)
			}
		}
	}
}
