package wireproxy_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers "mysql", which testdb takes

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

func openMySQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func mysqlRows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM effects`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMySQL(t *testing.T) {
	for _, test := range []struct {
		fault      deduptest.Fault
		now, later int // rows
	}{
		{deduptest.CommitLost, 0, 0},
		{deduptest.AnswerLost, 1, 1},
		{deduptest.CommitLate, 0, 1},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			dsn := testdb.MySQL(t)
			direct := openMySQL(t, dsn)
			if _, err := direct.Exec(`CREATE TABLE effects (n INT)`); err != nil {
				t.Fatal(err)
			}
			through := openMySQL(t, wireproxy.MySQL(t, dsn, test.fault))
			write := func(committing func()) error {
				tx, err := through.BeginTx(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range []string{`SELECT 'commit'`, `INSERT INTO effects VALUES (1)`} {
					if _, err := tx.Exec(q); err != nil {
						t.Fatal(err)
					}
				}
				committing()
				return tx.Commit()
			}
			var began time.Time
			if err := write(func() { began = time.Now() }); err == nil {
				t.Fatal("COMMIT was answered")
			}
			rowsAfter(t, began, test.now, test.later, func() int { return mysqlRows(t, direct) })
			if err := write(func() {}); err != nil { // everything else is forwarded
				t.Error(err)
			}
			if n := mysqlRows(t, direct); n != test.later+1 {
				t.Errorf("%d rows in the end, want %d", n, test.later+1)
			}
		})
	}
}
