package deduptest_test

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func ExampleStore() {
	ctx := context.Background()
	store := deduptest.NewStore()
	order := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-42"}}}
	for range 2 {
		err := store.InTx(ctx, order, func(tx *deduptest.Tx, claims []dedup.Claim) error {
			fmt.Println(claims[0].Verdict)
			if claims[0].Verdict == dedup.First {
				return tx.Add("charged order-42")
			}
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(store.Database().Count("charged order-42"))
	// Output:
	// first
	// duplicate
	// 1
}

// Two stores on one database are two processes.
func ExampleDatabase() {
	db := deduptest.NewDatabase()
	one, two := db.NewStore(), db.NewStore()
	order := []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-42"}}}
	for _, store := range []*deduptest.Store{one, two} {
		_ = store.InTx(context.Background(), order, func(_ *deduptest.Tx, claims []dedup.Claim) error {
			fmt.Println(claims[0].Verdict)
			return nil
		})
	}
	// Output:
	// first
	// duplicate
}

// A transaction of the program's own can claim as well.
func ExampleTx() {
	ctx := context.Background()
	store := deduptest.NewStore()
	tx, err := store.Database().Begin(ctx)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	if _, err := store.Claim(ctx, tx, []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-42"}}}); err != nil {
		panic(err)
	}
	if err := tx.Put(ctx, "balance", 7); err != nil {
		panic(err)
	}
	fmt.Println(store.Database().Value("balance"), tx.Commit(ctx), store.Database().Value("balance"))
	// Output: <nil> <nil> 7
}
