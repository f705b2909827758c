package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Each call of Newer is one statement, whatever its answer is.
func TestNewerTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	askTwice := func(t *testing.T, s *node, count func(ctx context.Context, tx *sql.Tx) int) {
		t.Helper()
		for range 2 { // the first transaction finds the schema
			within(t, s, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := s.Newer(ctx, tx, "other", 1); err != nil {
					return err
				}
				before := count(ctx, tx)
				for range 2 {
					if _, err := s.Newer(ctx, tx, "o", 1); err != nil {
						return err
					}
				}
				if n := count(ctx, tx) - before; n != 2 {
					t.Errorf("%d statements for two calls", n)
				}
				return nil
			})
		}
	}
	t.Run("postgres", func(t *testing.T) {
		d := openPostgres(t, testdb.Postgres(t))
		cfg, err := pgx.ParseConfig(d.dsn)
		if err != nil {
			t.Fatal(err)
		}
		sent := &trips{}
		cfg.Tracer = sent
		db := stdlib.OpenDB(*cfg)
		t.Cleanup(func() { _ = db.Close() })
		all := 0
		askTwice(t, newNode(t, db, sqlstore.Config{Dialect: sqlstore.Postgres}), func(context.Context, *sql.Tx) int {
			all += len(sent.take())
			return all
		})
	})
	t.Run("mysql", func(t *testing.T) {
		d := openMySQL(t)
		asked := 0
		askTwice(t, d.open(t, d.dsn, deduptest.Options{}), func(ctx context.Context, tx *sql.Tx) (n int) {
			var name string
			if err := tx.QueryRowContext(ctx, `SHOW SESSION STATUS LIKE 'Questions'`).Scan(&name, &n); err != nil {
				t.Error(err)
			}
			asked++ // SHOW counts itself
			return n - asked
		})
	})
}
