package webhook_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/migrations"
)

type database struct {
	name, driver, dialect, insert string
	kind                          sqlstore.Dialect
	create                        func(t *testing.T) (plain, through string)
}

func pick() (deduptest.Fault, bool) { return deduptest.Fault(rand.IntN(3)), rand.IntN(6) == 0 }

var databases = []database{
	cutMySQL("mariadb"), cutMySQL("mysql"),
	{"postgres", "pgx", "postgres", "INSERT INTO effects VALUES ($1)", sqlstore.Postgres, func(t *testing.T) (string, string) {
		dsn := testdb.Schema(t, testdb.Postgres(t))
		return dsn, wireproxy.PostgresEach(t, dsn, pick)
	}},
	{"sqlite", "sqlite", "sqlite", "INSERT INTO effects VALUES (?)", sqlstore.SQLite, func(t *testing.T) (string, string) {
		dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)"
		return dsn, dsn
	}},
}

func init() { _ = mysql.SetLogger(new(mysql.NopLogger)) } // which would print each connection that is cut

// cutMySQL is on the server that the name of the subtest says: see testdb.OnMySQL.
func cutMySQL(name string) database {
	return database{name, "mysql", "mysql", "INSERT INTO effects VALUES (?)", sqlstore.MySQL, func(t *testing.T) (string, string) {
		dsn := testdb.MySQL(t)
		return dsn, wireproxy.MySQLEach(t, dsn, pick)
	}}
}

func (a database) open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(a.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

func (a database) start(t *testing.T) (direct *sql.DB, store *sqlstore.Store) {
	t.Helper()
	plain, through := a.create(t)
	direct = a.open(t, plain)
	if err := migrations.Apply(t.Context(), direct, a.dialect, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.ExecContext(t.Context(), "CREATE TABLE effects (id VARCHAR(600) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.New(sqlstore.Config{DB: a.open(t, through), Dialect: a.kind, ClaimTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return direct, store
}

func (a database) consumer(t *testing.T, store *sqlstore.Store,
	handle consumer.Handler[*sql.Tx],
) *consumer.Consumer[*sql.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, Logger: slog.New(slog.DiscardHandler),
		Backoff: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCutCommits: COMMITs are cut and delayed. No 200 may come before the effect is committed, and each event has one
// effect.
func TestCutCommits(t *testing.T) {
	for _, a := range databases {
		if !matrix.RunsOn(a.name, t.Name()) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			direct, store := a.start(t)
			c := a.consumer(t, store, func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				if _, err := tx.ExecContext(ctx, a.insert, m.ID); err != nil {
					return err
				}
				switch rand.IntN(12) {
				case 0:
					return errors.New("by chance")
				case 1:
					panic("by chance")
				}
				return nil
			})
			s := newShop()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			count := func(id string) (n int) {
				query := "SELECT count(*) FROM effects WHERE id = '" + id + "'"
				if err := direct.QueryRowContext(context.WithoutCancel(t.Context()), query).Scan(&n); err != nil {
					t.Error(err)
				}
				return n
			}
			created := time.Now() // the same for each delivery of an event
			var wg sync.WaitGroup
			for client := range 6 {
				wg.Go(func() {
					for i := range 8 {
						id := fmt.Sprintf("e-%d-%d", client/2, i) // two clients for each event
						for tries := 0; ; tries++ {
							ctx, cancel := context.WithTimeout(t.Context(),
								time.Duration(5+rand.IntN(3000))*time.Millisecond)
							status := do(r, s.request(ctx, shopEvent{ID: id, Type: "paid", Created: created})).StatusCode
							cancel()
							if status == 200 {
								if n := count(id); n != 1 {
									t.Errorf("%s: 200 and %d effects", id, n)
								}
								break
							}
							if tries == 60 {
								t.Errorf("%s is never accepted", id)
								break
							}
							<-time.After(20 * time.Millisecond)
						}
					}
				})
			}
			wg.Wait()
			<-time.After(deduptest.LateBy + 300*time.Millisecond)
			var all, distinct int
			if err := direct.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM effects").Scan(&all,
				&distinct); err != nil {
				t.Fatal(err)
			}
			if all != 24 || distinct != 24 {
				t.Errorf("%d effects of %d events, want 24", all, distinct)
			}
			if found, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{}); err != nil || len(found) != 0 {
				t.Errorf("letters %v, %v", found, err)
			}
		})
	}
}

// TestSimilarIDs: IDs and tenants that a collation or a padding would take for equal are different events.
func TestSimilarIDs(t *testing.T) {
	for _, a := range databases {
		if !matrix.RunsOn(a.name, t.Name()) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			direct, store := a.start(t)
			c := a.consumer(t, store, func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				_, err := tx.ExecContext(ctx, a.insert, fmt.Sprintf("%x", m.ID))
				return err
			})
			s := newShop()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			created := time.Now()
			ids := []string{
				"x", "x ", " x", "X", "x\t", "é", "e\u0301", "E", "e", "ß", "ss", "ﬁ", "fi", "x\u200b", "1",
				"01", "1.0", "'", `"`, `\`, `\\`, "%", "_", "a:b", "a::b", "ı", "i", "İ",
			}
			for range 2 {
				for _, id := range ids {
					for range 20 {
						if s.status(t, r, shopEvent{ID: id, Type: "paid", Created: created}) == 200 {
							break
						}
						<-time.After(50 * time.Millisecond)
					}
				}
			}
			var all int
			if err := direct.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&all); err != nil {
				t.Fatal(err)
			}
			if all != len(ids) {
				t.Errorf("%d effects of %d events", all, len(ids))
			}
		})
	}
}
