package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A program that manages its transaction itself claims in that transaction.
func ExampleStore_Claim_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "order-42:paid"}, Time: time.Now()}
	for range 2 {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			claims, err := store.Claim(ctx, tx, []dedup.Record{rec})
			if err != nil {
				return err
			}
			fmt.Println(claims[0].Verdict)
			if claims[0].Verdict != dedup.First {
				return nil
			}
			_, err = tx.Exec(ctx, `SELECT 'the effect'`)
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first
	// duplicate
}

// Register reports at start what would make every message fail.
func ExampleConfig_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{
		Pool:         pool,
		Isolation:    pgx.ReadCommitted,
		ClaimTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Register(ctx, "billing", dedup.DefaultWindow))
	// Output: <nil>
}

// A transfer reads and writes two accounts. Neither account is the key of the transfer's message, so the handler locks both.
func ExampleStore_LockKeys_postgres() {
	ctx := context.Background()
	pool, cleanUp := examplePool(ctx)
	defer cleanUp()

	store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	account := func(id string) dedup.Key { return dedup.Key{Consumer: "accounts", Tenant: "acme", ID: id} }
	transfer := func(from, to string, move func()) error { // in a consumer, the handler does this in its transaction
		return store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			if err := store.LockKeys(ctx, tx, account(from), account(to)); err != nil {
				return err
			}
			move() // reads both balances, decides, and writes both
			return nil
		})
	}
	err = transfer("alice", "bob", func() {
		err := transfer("bob", "carol", func() {})
		fmt.Println("meanwhile, bob is taken:", errors.Is(err, dedup.ErrInFlight))
		fmt.Println("meanwhile, carol and dave are free:", transfer("carol", "dave", func() {}))
	})
	fmt.Println("alice to bob:", err)
	fmt.Println("bob to carol:", transfer("bob", "carol", func() {}))
	// Output:
	// meanwhile, bob is taken: true
	// meanwhile, carol and dave are free: <nil>
	// alice to bob: <nil>
	// bob to carol: <nil>
}

// examplePool connects to its own schema on the server that make services-up starts.
func examplePool(ctx context.Context) (pool *pgxpool.Pool, cleanUp func()) {
	tb := &exampleTB{}
	pool, err := pgxpool.New(ctx, testdb.Schema(tb, testdb.Postgres(tb)))
	if err != nil {
		log.Fatal(err)
	}
	if err := pgxstore.Migrate(ctx, pool, ""); err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		pool.Close()
		for _, f := range tb.cleanups {
			f()
		}
	}
}

// exampleTB implements the part of testing.TB that testdb needs.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Context() context.Context          { return context.Background() }
func (*exampleTB) Name() string                      { return "Example" }
func (*exampleTB) Fatal(args ...any)                 { log.Fatal(args...) }
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Error(args ...any)                 { log.Fatal(args...) }
func (*exampleTB) Skipf(format string, args ...any)  { log.Fatalf(format, args...) }
func (tb *exampleTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }
