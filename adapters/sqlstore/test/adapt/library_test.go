package adapt_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/outbox"
)

// database is an empty database, with the dialects for gorm and bun.
type database struct {
	*sql.DB
	dialect sqlstore.Dialect
	gorm    gorm.Dialector
	bun     schema.Dialect
}

// eachDatabase runs f as a sub-test on SQLite, on PostgreSQL, on MariaDB and on MySQL.
func eachDatabase(t *testing.T, f func(t *testing.T, db database, store *sqlstore.Store)) {
	run := func(name, driver string, dsn func(t *testing.T) string, d database) {
		t.Run(name, func(t *testing.T) {
			db, err := sql.Open(driver, dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			d := d
			d.DB = db
			switch d.dialect {
			case sqlstore.SQLite:
				d.gorm = sqlite.New(sqlite.Config{Conn: db})
			case sqlstore.MySQL:
				d.gorm = mysql.New(mysql.Config{Conn: db})
			default:
				d.gorm = postgres.New(postgres.Config{Conn: db})
			}
			if err := migrations.Apply(t.Context(), db, string(d.dialect), ""); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(),
				`CREATE TABLE charges (order_id VARCHAR(40) NOT NULL UNIQUE, cents BIGINT NOT NULL)`); err != nil {
				t.Fatal(err)
			}
			store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: d.dialect})
			if err != nil {
				t.Fatal(err)
			}
			f(t, d, store)
		})
	}
	run("sqlite", "sqlite", func(t *testing.T) string {
		return "file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=journal_mode(wal)"
	}, database{dialect: sqlstore.SQLite, bun: sqlitedialect.New()})
	run("postgres", "pgx", func(t *testing.T) string { return testdb.Schema(t, testdb.Postgres(t)) },
		database{dialect: sqlstore.Postgres, bun: pgdialect.New()})
	for _, name := range []string{"mariadb", "mysql"} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		run(name, "mysql", func(t *testing.T) string { return testdb.MySQL(t) },
			database{dialect: sqlstore.MySQL, bun: mysqldialect.New()})
	}
}

// adaptedStore is a *sqlstore.Adapted or a type that embeds it.
type adaptedStore[TTx any] interface {
	dedup.Store[TTx]
	outbox.Writer[TTx]
	Outbox() outbox.Operations
}

// library is what the tests use of one library.
type library[TTx any] struct {
	store  adaptedStore[TTx]
	charge func(ctx context.Context, tx TTx, order string) error

	commit, rollback func(tx TTx) error
	// nested runs f in a transaction within tx, which is rolled back when f fails.
	nested func(ctx context.Context, tx TTx, f func(TTx) error) error
	// own runs f in a transaction that the library begins.
	own func(ctx context.Context, f func(TTx) error) error
	// outside has the transaction's type, but is no transaction.
	outside TTx
	// remembers is true if the store fails a transaction after a swallowed error, on every database.
	remembers bool
}

var errUndo = errors.New("undo")

func record(id string) []dedup.Record {
	return []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}}}
}

// check runs the cases that every library must pass on db.
func check[TTx any](t *testing.T, db database, l library[TTx]) {
	ctx, s := t.Context(), l.store
	charges := func(t *testing.T, want string) {
		t.Helper()
		rows, err := db.QueryContext(ctx, `SELECT order_id FROM charges ORDER BY order_id`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all []string
		for rows.Next() {
			var one string
			if err := rows.Scan(&one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("charges: %s, want %s", got, want)
		}
		if _, err := db.ExecContext(ctx, `DELETE FROM charges`); err != nil {
			t.Fatal(err)
		}
	}
	handle := func(id string, fn func(tx TTx) error) (ran bool, err error) {
		err = s.InTx(ctx, record(id), func(tx TTx, c []dedup.Claim) error {
			if ran = c[0].Verdict == dedup.First; !ran {
				return nil
			}
			return fn(tx)
		})
		return ran, err
	}

	t.Run("claim and effect are one transaction", func(t *testing.T) {
		charge := func(tx TTx) error { return l.charge(ctx, tx, "a") }
		_, err := handle("a", func(tx TTx) error { return errors.Join(charge(tx), errUndo) })
		if !errors.Is(err, errUndo) {
			t.Fatal(err)
		}
		for i, first := range []bool{true, false} {
			if ran, err := handle("a", charge); ran != first || err != nil {
				t.Fatalf("delivery %d: ran %v, %v", i, ran, err)
			}
		}
		charges(t, "a")
	})

	t.Run("a handler that commits or rolls back is found out", func(t *testing.T) {
		for name, end := range map[string]func(TTx) error{"commits": l.commit, "rolls": l.rollback} {
			_, err := handle(name, func(tx TTx) error {
				if err := l.charge(ctx, tx, name); err != nil {
					return err
				}
				return end(tx)
			})
			if !errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("a handler that %s: %v", name, err)
			}
		}
		charges(t, "commits")
		if ran, err := handle("commits", func(TTx) error { return nil }); ran || err != nil {
			t.Errorf("after the handler's COMMIT the message is not a duplicate: ran %v, %v", ran, err)
		}
		if ran, err := handle("rolls", func(TTx) error { return nil }); !ran || err != nil {
			t.Errorf("after the handler's ROLLBACK the message was not handled again: ran %v, %v", ran, err)
		}
	})

	t.Run("a transaction within the handler's", func(t *testing.T) {
		_, err := handle("nested", func(tx TTx) error {
			if err := l.charge(ctx, tx, "outer"); err != nil {
				return err
			}
			for name, fails := range map[string]error{"inner": nil, "undone": errUndo} {
				err := l.nested(ctx, tx, func(tx TTx) error { return errors.Join(l.charge(ctx, tx, name), fails) })
				if !errors.Is(err, fails) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		charges(t, "inner outer")
	})

	t.Run("a swallowed error commits nothing without what failed", func(t *testing.T) {
		_, err := handle("swallowed", func(tx TTx) error {
			_ = l.charge(ctx, tx, "once")
			_ = l.charge(ctx, tx, "once") // violates its constraint
			return nil
		})
		if db.dialect == sqlstore.Postgres || l.remembers {
			if err == nil || errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx = %v, want an error that counts as an attempt", err)
			}
			charges(t, "")
			return
		}
		if err != nil { // only the failed statement was undone, and the handler accepts that
			t.Error(err)
		}
		charges(t, "once")
	})

	t.Run("enqueue", func(t *testing.T) {
		for _, fails := range []error{errUndo, nil} {
			_, err := handle("enqueue", func(tx TTx) error {
				return errors.Join(s.Enqueue(ctx, tx, outbox.Message{ID: "1", Topic: "charges"}), fails)
			})
			if !errors.Is(err, fails) {
				t.Fatal(err)
			}
		}
		if stats, err := s.Outbox().Stats(ctx); err != nil || stats.Pending != 1 {
			t.Errorf("%d messages pending, %v", stats.Pending, err)
		}
	})

	t.Run("claim in a transaction that the library began", func(t *testing.T) {
		verdict := func(fails error) (v dedup.Verdict) {
			err := l.own(ctx, func(tx TTx) error {
				c, err := s.Claim(ctx, tx, record("own"))
				if err == nil {
					v = c[0].Verdict
				}
				return errors.Join(err, fails)
			})
			if !errors.Is(err, fails) {
				t.Fatal(err)
			}
			return v
		}
		for i, want := range []dedup.Verdict{dedup.First, dedup.First, dedup.Duplicate} {
			if got := verdict([]error{errUndo, nil, nil}[i]); got != want {
				t.Errorf("claim %d: %v, want %v", i, got, want)
			}
		}
	})

	t.Run("outside of a transaction nothing is written", func(t *testing.T) {
		if err := s.Enqueue(ctx, l.outside, outbox.Message{ID: "2", Topic: "charges"}); err == nil {
			t.Error("enqueued outside of a transaction")
		}
		if _, err := s.Claim(ctx, l.outside, record("outside")); err == nil {
			t.Error("claimed outside of a transaction")
		}
	})
}
