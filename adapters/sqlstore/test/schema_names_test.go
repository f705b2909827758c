package sqlstore_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
)

// The Store must not use tables of the same names in another schema, whatever the session's search path is.
func TestStatementsNameTheirSchema(t *testing.T) {
	shadow := func(t *testing.T, db fixture) (use []string) {
		switch db.dialect {
		case "sqlite":
			var all []string
			for _, table := range stringsOf(t, db.DB,
				`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`) {
				all = append(all, `CREATE TEMP TABLE `+table+` AS SELECT * FROM main.`+table+` WHERE false`)
			}
			return all
		case "postgres":
			other := testdb.Schema(t, map[bool]string{true: testdb.Postgres(t), false: testdb.Postgres18(t)}[strings.HasSuffix(t.Name(), "postgres15")])
			there := openDB(t, "pgx", other)
			if err := migrations.Apply(t.Context(), there, "postgres", ""); err != nil {
				t.Fatal(err)
			}
			var schema string
			if err := there.QueryRow(`SELECT current_schema()`).Scan(&schema); err != nil {
				t.Fatal(err)
			}
			return []string{`SET search_path = "` + schema + `"`}
		default:
			there, err := mysql.ParseDSN(testdb.MySQL(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := migrations.Apply(t.Context(), openDB(t, "mysql", there.FormatDSN()), "mysql", ""); err != nil {
				t.Fatal(err)
			}
			return []string{"USE `" + there.DBName + "`"}
		}
	}
	eachDatabase(t, func(t *testing.T, db fixture) {
		ctx, s, use := t.Context(), alone(db), shadow(t, db)
		if err := s.Register(ctx, "billing", 0); err != nil {
			t.Fatal(err)
		}
		if v := handle(t, s, "k", use...); v != dedup.First {
			t.Fatal(v)
		}
		if v := handle(t, s, "k"); v != dedup.Duplicate {
			t.Errorf("the message that set it is %v, want a duplicate", v)
		}
		// In the application's own transaction the Store does not check settings.
		err := inTx(ctx, s.db, nil, func(tx *sql.Tx) error {
			for _, q := range use {
				q = strings.Replace(strings.Replace(q, "SET search", "SET LOCAL search", 1), "TEMP TABLE",
					"TEMP TABLE IF NOT EXISTS", 1)
				if _, err := tx.Exec(q); err != nil {
					return err
				}
			}
			answers, err := s.Claim(ctx, tx, []dedup.Record{record("k"), record("l")})
			if err != nil {
				return err
			}
			if answers[0].Verdict != dedup.Duplicate || answers[1].Verdict != dedup.First {
				t.Errorf("Claim under %v = %v, want a duplicate and a first", use, answers)
			}
			newer, err := s.Newer(ctx, tx, "o", 1)
			if err != nil || !newer {
				t.Errorf("version 1 under %v: newer is %v, error %v", use, newer, err)
			}
			return errors.Join(s.SaveResult(ctx, tx, record("l").Key, []byte("r")), s.Forget(ctx, tx, record("m").Key),
				s.LockOrderingKey(ctx, tx, "key"),
				s.Enqueue(ctx, tx, outbox.Message{ID: "m", Topic: "t", OrderingKey: "key", Payload: []byte("p")}))
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := db.count(t, `SELECT count(*) FROM outbox_messages`); n != 1 {
			t.Errorf("%d messages in the Store's outbox, want 1", n)
		}
		if n := db.count(t, `SELECT count(*) FROM processed_messages`); n != 2 {
			t.Errorf("%d claims in the Store's table, want 2", n)
		}
	})
}
