package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// lockPlaces are the databases for the tests of LockKeys: without and with a pooler.
func lockPlaces(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Parallel()
	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.Schema(t, testdb.Postgres(t)))
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		pooled, _ := testdb.PgBouncer(t)
		test(t, pooled+"&default_query_exec_mode=exec")
	})
}

func lockStore(t *testing.T, dsn string, wait time.Duration) *pgxstore.Store {
	t.Helper()
	pool := testPool(t, dsn, 8)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	return newStore(t, pgxstore.Config{Pool: pool, ClaimTimeout: wait})
}

// accounts makes keys that only this test uses: locks belong to the database, and tests share it.
func accounts(t *testing.T) func(id string) dedup.Key {
	return func(id string) dedup.Key { return dedup.Key{Consumer: t.Name(), Tenant: "acme", ID: id} }
}

// Transactions that read and write several tables lose no update, in whatever order they name their keys.
func TestLockExcludes(t *testing.T) {
	lockPlaces(t, func(t *testing.T, dsn string) {
		account := accounts(t)
		nodes := []*pgxstore.Store{lockStore(t, dsn, 2*time.Minute), lockStore(t, dsn, 2*time.Minute)}
		pool := testPool(t, dsn, 2)
		for _, sql := range []string{
			`CREATE TABLE balances (account text, amount int)`,
			`INSERT INTO balances VALUES ('a', 0), ('b', 0)`,
		} {
			if _, err := pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		const each = 20
		var wg sync.WaitGroup
		for worker := range 6 {
			wg.Go(func() {
				keys := []dedup.Key{account("a"), account("b"), account("a")}
				if worker%2 == 1 {
					keys = []dedup.Key{account("b"), account("a")}
				}
				for range each {
					err := nodes[worker%2].InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
						if err := nodes[worker%2].LockKeys(t.Context(), tx, keys...); err != nil {
							return err
						}
						for _, a := range []string{"a", "b"} {
							var amount int
							if err := tx.QueryRow(t.Context(), `SELECT amount FROM balances WHERE account = $1`,
								a).Scan(&amount); err != nil {
								return err
							}
							if _, err := tx.Exec(t.Context(), `UPDATE balances SET amount = $1 WHERE account = $2`,
								amount+1, a); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var a, b int
		if err := pool.QueryRow(t.Context(), `SELECT sum(amount) FILTER (WHERE account = 'a'), sum(amount) FILTER (WHERE account = 'b') FROM balances`).Scan(&a, &b); err != nil {
			t.Fatal(err)
		}
		if a != 6*each || b != 6*each {
			t.Errorf("balances %d and %d after %d additions to both: updates were lost", a, b, 6*each)
		}
	})
}

// LockKeys stops waiting after the limit and names the key. Other keys, tenants and consumers do not wait. A rollback
// and the end of a process release the key.
func TestLockWaitsItsTime(t *testing.T) {
	lockPlaces(t, func(t *testing.T, dsn string) {
		account := accounts(t)
		s, holder := lockStore(t, dsn, 300*time.Millisecond), lockStore(t, dsn, 2*time.Minute)
		lock := func(keys ...dedup.Key) (err error) {
			return s.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
				var before, after string
				const show = `SELECT current_setting('lock_timeout')`
				if err := tx.QueryRow(t.Context(), show).Scan(&before); err != nil {
					return err
				}
				if err := s.LockKeys(t.Context(), tx, keys...); err != nil {
					return err
				}
				if err := tx.QueryRow(t.Context(), show).Scan(&after); err != nil || after != before {
					return fmt.Errorf("lock_timeout was %s and is %s, %w", before, after, err)
				}
				return nil
			})
		}
		errRollBack := errors.New("roll back")
		err := holder.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := holder.LockKeys(t.Context(), tx, account("a")); err != nil {
				return err
			}
			if err := holder.LockKeys(t.Context(), tx, account("a")); err != nil { // locking it again works
				return err
			}
			var took time.Duration
			named := errors.New("the key is named")
			err := again(s, func() error {
				began := time.Now()
				err := lock(account("free"), account("a"))
				took = time.Since(began)
				if errors.Is(err, dedup.ErrInFlight) && strings.Contains(err.Error(), account("a").String()) {
					return named
				}
				return err
			})
			if err != named || took < 300*time.Millisecond {
				t.Errorf("Lock of a key that is held = %v after %v; want ErrInFlight after 300 ms, and the key's name",
					err, took)
			}
			for _, k := range []dedup.Key{
				account("b"),
				{Consumer: t.Name(), ID: "a"},
				{Consumer: t.Name() + "2", Tenant: "acme", ID: "a"},
			} {
				if err := again(s, func() error { return lock(k) }); err != nil {
					t.Errorf("Lock(%v) = %v", k, err)
				}
			}
			return errRollBack
		})
		if !errors.Is(err, errRollBack) {
			t.Fatal(err)
		}
		if err := again(s, func() error { return lock(account("a")) }); err != nil {
			t.Errorf("after a rollback: %v", err)
		}
		err = holder.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := holder.LockKeys(t.Context(), tx, account("a")); err != nil {
				return err
			}
			return tx.Conn().Close(context.WithoutCancel(t.Context()))
		})
		if err == nil {
			t.Error("a lost connection was not noticed")
		}
		if err := again(s, func() error { return lock(account("a")) }); err != nil { // the server notices after a while
			t.Fatalf("after the connection was lost: %v", err)
		}
		if err := again(s, func() error { return lock(dedup.Key{Consumer: "accounts"}) }); !errors.Is(err,
			dedup.ErrNoKey) {
			t.Errorf("Lock of no key = %v", err)
		}
	})
}
