package dialect_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A transaction that has been open for longer than asked is listed with what a person needs to find its process.
func TestPostgresOldTransactions(t *testing.T) {
	admin, err := pgx.Connect(t.Context(), testdb.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	// a database of its own: there other tests have no transactions
	name := fmt.Sprintf("txonce_old_%08x", rand.Uint32())
	if _, err := admin.Exec(t.Context(), `CREATE DATABASE `+name); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := admin.Exec(t.Context(), `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	}()
	connect := func(as string) *pgx.Conn {
		cfg := admin.Config()
		cfg.Database = name
		cfg.RuntimeParams["application_name"] = as
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return conn
	}
	frozen, watching := connect("billing"), connect("dashboard")
	if _, err := frozen.Exec(t.Context(), `BEGIN; SELECT 1`); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		age  time.Duration
		want int
	}{{0, 1}, {time.Hour, 0}} {
		rows, err := watching.Query(t.Context(), dialect.NewPostgresOperator("").OldTransactions, tc.age.Microseconds())
		if err != nil {
			t.Fatal(err)
		}
		var pid, since int64
		var state, client string
		tag, err := pgx.ForEachRow(rows, []any{&pid, &since, &state, &client}, func() error {
			if pid != int64(frozen.PgConn().PID()) || time.Since(time.UnixMicro(since)).Abs() > time.Hour ||
				state != "idle in transaction" || client[len(client)-7:] != "billing" {
				t.Errorf("process %d since %d, %q, %q", pid, since, state, client)
			}
			return nil
		})
		if err != nil || tag.RowsAffected() != int64(tc.want) {
			t.Errorf("older than %v: %v, %v; want %d", tc.age, tag, err, tc.want)
		}
	}
}

// A question mark in the name of a schema is no parameter.
func TestOperatorSchemaWithQuestionMark(t *testing.T) {
	op := dialect.NewPostgresOperator("a?b")
	if got := op.EndAction; !strings.Contains(got, `"a?b".operator_actions`) || strings.Contains(got, "$3") {
		t.Error(got)
	}
	if got, _ := op.Choose(op.MarkLetters, dialect.LetterFilter{Consumer: "billing"}); !strings.Contains(got,
		`"a?b".operator_results`) || strings.Contains(got, "$4") {
		t.Error(got)
	}
}
