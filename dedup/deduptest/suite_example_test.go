package deduptest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A harness has a function that makes a database, and reasons for the cases that do not apply to it.
func ExampleHarness() {
	h := deduptest.Harness[*deduptest.Tx]{
		New: inMemory,
		DoesNotApply: map[string]string{
			"each error code is retryable or not": "a map has no error codes",
		},
	}
	_ = func(t *testing.T) { deduptest.TestStore(t, h) } // TestStore of the store's own package
	fmt.Println(len(h.DoesNotApply), "case does not apply")
	// Output: 1 case does not apply
}

// The hooks of a DB are functions for one database. Hooks for single cases may be nil, with a reason in
// Harness.DoesNotApply.
func ExampleDB() {
	memory := deduptest.NewDatabase()
	db := deduptest.DB[*deduptest.Tx]{
		Effect: func(_ context.Context, tx *deduptest.Tx, name string) error { return tx.Add(name) },
	}
	_ = memory.NewStore().InTx(context.Background(), nil, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		return db.Effect(context.Background(), tx, "charge")
	})
	fmt.Println(memory.Count("charge"))
	// Output: 1
}

// The suite varies the options of a node. A harness translates them into the store's Config.
func ExampleOptions() {
	open := func(o deduptest.Options) *deduptest.Store {
		s := deduptest.NewStore()
		s.Wait = o.Wait
		return s
	}
	fmt.Println(open(deduptest.Options{Wait: deduptest.LateBy}).Wait)
	// Output: 700ms
}

// Each way to lose the handler's transaction is a sub-test.
func ExampleMisuse() {
	m := deduptest.Misuse[*deduptest.Tx]{
		Name: "the handler commits",
		Do:   func(ctx context.Context, tx *deduptest.Tx) error { return tx.Commit(ctx) },
		Ends: true,
	}
	err := deduptest.NewStore().InTx(context.Background(), nil, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		_ = m.Do(context.Background(), tx) // swallowed
		return nil
	})
	fmt.Println(err)
	// Output: dedup: the handler ended or lost its transaction: it called Commit; nothing was committed
}

func ExampleFault() {
	for _, f := range []deduptest.Fault{deduptest.CommitLost, deduptest.AnswerLost, deduptest.CommitLate} {
		fmt.Println(f)
	}
	// Output:
	// COMMIT lost
	// answer lost
	// COMMIT late
}
