package sqlstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// lockPlaces runs a test of LockKeys on each database.
func lockPlaces(t *testing.T, test func(t *testing.T, open func(o deduptest.Options) *node)) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		d := openPostgres(t, testdb.Postgres(t))
		test(t, func(o deduptest.Options) *node { return d.open(t, d.dsn, o) })
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		pooled, _ := testdb.PgBouncer(t)
		d := openPostgresAt(t, pooled+"&default_query_exec_mode=exec")
		test(t, func(o deduptest.Options) *node { return d.open(t, d.dsn, o) })
	})
	for _, name := range []string{"MariaDB", "MySQL"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openMySQL(t)
			test(t, func(o deduptest.Options) *node { return d.open(t, d.dsn, o) })
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		d := openSQLite(t)
		test(t, func(o deduptest.Options) *node { return d.open(t, d.dsn, o) })
	})
}

// Transactions that lock keys before they read and write lose no update, whatever the order of the keys.
func TestLockExcludes(t *testing.T) {
	lockPlaces(t, func(t *testing.T, open func(o deduptest.Options) *node) {
		nodes := []*node{open(deduptest.Options{Wait: 2 * time.Minute}), open(deduptest.Options{Wait: 2 * time.Minute})}
		exec(t, nodes[0].db, `CREATE TABLE balances (amount int)`)
		exec(t, nodes[0].db, `INSERT INTO balances VALUES (0)`)
		a, b := dedup.Key{Consumer: t.Name(), ID: "a"}, dedup.Key{Consumer: t.Name(), ID: "b"}
		const each = 20
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				n, keys := nodes[worker%2], []dedup.Key{a, b}
				if worker >= 2 {
					keys = []dedup.Key{b, a}
				}
				for range each {
					add := func() error {
						return n.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
							if err := n.LockKeys(t.Context(), tx, keys...); err != nil {
								return err
							}
							var amount int
							if err := tx.QueryRowContext(t.Context(),
								`SELECT amount FROM balances`).Scan(&amount); err != nil {
								return err
							}
							_, err := tx.ExecContext(t.Context(), fmt.Sprintf(`UPDATE balances SET amount = %d`,
								amount+1))
							return err
						})
					}
					if err := add(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var amount int
		if err := nodes[0].db.QueryRowContext(t.Context(), `SELECT amount FROM balances`).Scan(&amount); err != nil ||
			amount != 4*each {
			t.Errorf("balance %d after %d additions, %v: updates were lost", amount, 4*each, err)
		}
	})
}

// The wait ends after ClaimTimeout, and the error names the key. A rollback frees the key.
func TestPostgresLockWaitsItsTime(t *testing.T) {
	t.Parallel()
	d := openPostgres(t, testdb.Postgres(t))
	testLockWait(t, d.open(t, d.dsn, deduptest.Options{}),
		d.open(t, d.dsn, deduptest.Options{Wait: 300 * time.Millisecond}))
}

func TestMySQLLockWaitsItsTime(t *testing.T) {
	t.Parallel()
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{Wait: 300 * time.Millisecond})
	testLockWait(t, d.open(t, d.dsn, deduptest.Options{}), s)
	if rows := stringsOf(t, s.db, `SELECT id FROM processed_messages`); len(rows) > 0 {
		t.Errorf("locks have left rows behind: %v", rows)
	}
}

func testLockWait(t *testing.T, holder, s *node) {
	key, other := dedup.Key{Consumer: t.Name(), ID: "a"}, dedup.Key{Consumer: t.Name(), ID: "b"}
	lock := func(k dedup.Key) error {
		return s.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error { return s.LockKeys(t.Context(), tx, k) })
	}
	errRollBack := errors.New("roll back")
	err := holder.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
		if err := holder.LockKeys(t.Context(), tx, key); err != nil {
			return err
		}
		began := time.Now()
		if err := lock(key); !errors.Is(err, dedup.ErrInFlight) || s.Retryable(err) || !strings.Contains(err.Error(),
			key.String()) || time.Since(began) < 300*time.Millisecond {
			t.Errorf("LockKeys of a key that is held = %v; want ErrInFlight after 300 ms, and the key's name", err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := lock(key); !errors.Is(err, dedup.ErrInFlight) || s.Retryable(err) ||
					!strings.Contains(err.Error(), key.String()) {
					t.Errorf("LockKeys for which others wait = %v; want ErrInFlight and the key's name", err)
				}
			})
		}
		wg.Wait()
		if err := again(s, func() error { return lock(other) }); err != nil {
			t.Error(err)
		}
		return errRollBack
	})
	if !errors.Is(err, errRollBack) {
		t.Fatal(err)
	}
	if err := again(s, func() error { return lock(key) }); err != nil {
		t.Errorf("after a rollback: %v", err)
	}
}
