package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
)

// The examples run on the in-memory store. With adapters/pgxstore or adapters/sqlstore the transaction is a pgx.Tx or a
// *sql.Tx, and Add is an INSERT.

func record(id, content string) dedup.Record {
	return dedup.Record{
		Key:         dedup.Key{Consumer: "billing", ID: id},
		Fingerprint: dedup.FingerprintOf([]byte(content)),
		Time:        time.Now(), // of the message, not of its receipt
	}
}

func ExampleStore() {
	ctx := context.Background()
	db := deduptest.NewDatabase()
	var store dedup.Store[*deduptest.Tx] = db.NewStore()

	for range 3 { // one message, delivered three times
		err := store.InTx(ctx, []dedup.Record{record("order-42:paid", "10 EUR")}, func(tx *deduptest.Tx, claims []dedup.Claim) error {
			fmt.Println(claims[0].Verdict)
			if claims[0].Verdict != dedup.First {
				return nil
			}
			return tx.Add("charge of order-42")
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(db.Count("charge of order-42"), "charge")
	// Output:
	// first
	// duplicate
	// duplicate
	// 1 charge
}

// In your own transaction, the claim is committed or rolled back with it.
func ExampleStore_claim() {
	ctx := context.Background()
	db := deduptest.NewDatabase()
	store := db.NewStore()

	charge := func() error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		claims, err := store.Claim(ctx, tx, []dedup.Record{record("order-42:paid", "10 EUR")})
		if err != nil {
			return err
		}
		if claims[0].Verdict == dedup.First {
			if err := tx.Add("charge of order-42"); err != nil {
				return err
			}
		}
		return tx.Commit(ctx)
	}
	fmt.Println(charge(), charge(), db.Count("charge of order-42"))
	// Output: <nil> <nil> 1
}

// Each Verdict needs another reaction. Only First does the work.
func ExampleVerdict() {
	for _, v := range []dedup.Verdict{dedup.First, dedup.Duplicate, dedup.Mismatch, dedup.Unprovable} {
		switch v {
		case dedup.First:
			fmt.Println(v, "- do the work in this transaction")
		case dedup.Duplicate:
			fmt.Println(v, "- acknowledge, it is done")
		case dedup.Mismatch:
			fmt.Println(v, "- never drop it: the key was used for something else")
		case dedup.Unprovable:
			fmt.Println(v, "- never run it: it may have been done long ago")
		}
	}
	// Output:
	// first - do the work in this transaction
	// duplicate - acknowledge, it is done
	// mismatch - never drop it: the key was used for something else
	// unprovable - never run it: it may have been done long ago
}

// A Claim shows the row that was there before, such as the fingerprint of the content that the key was used for.
func ExampleClaim() {
	ctx := context.Background()
	store := deduptest.NewStore()
	for _, content := range []string{"10 EUR", "99 EUR"} {
		_ = store.InTx(ctx, []dedup.Record{record("order-42:paid", content)}, func(_ *deduptest.Tx, claims []dedup.Claim) error {
			c := claims[0]
			fmt.Println(c.Verdict, c.Fingerprint == dedup.FingerprintOf([]byte("10 EUR")), c.ExpiresAt.IsZero())
			return nil
		})
	}
	// Output:
	// first false true
	// mismatch true false
}

// With a ResultStore, a repeated request gets the first answer again.
func ExampleResultStore() {
	ctx := context.Background()
	store := deduptest.NewStore()
	var results driver.ResultStore[*deduptest.Tx] = store
	r := record("request-7", "POST /payments")
	for range 2 {
		_ = store.InTx(ctx, []dedup.Record{r}, func(tx *deduptest.Tx, claims []dedup.Claim) error {
			if claims[0].Verdict == dedup.Duplicate {
				fmt.Printf("replay %s\n", claims[0].Result)
				return nil
			}
			fmt.Println("pay")
			return results.SaveResult(ctx, tx, r.Key, []byte(`{"payment":"p-1"}`))
		})
	}
	// Output:
	// pay
	// replay {"payment":"p-1"}
}

// Lookup reads a claim for people. It does not show whether a COMMIT happened.
func ExampleKeyReader() {
	ctx := context.Background()
	store := deduptest.NewStore()
	_ = store.InTx(ctx, []dedup.Record{record("order-42:paid", "10 EUR")},
		func(*deduptest.Tx, []dedup.Claim) error { return nil })

	var look driver.KeyReader = store
	for _, id := range []string{"order-42:paid", "order-43:paid"} {
		_, found, err := look.Lookup(ctx, dedup.Key{Consumer: "billing", ID: id})
		fmt.Println(id, found, err)
	}
	// Output:
	// order-42:paid true <nil>
	// order-43:paid false <nil>
}

// A Sweeper does this: it calls Purge until the end of the table.
func ExamplePurger() {
	ctx := context.Background()
	db := deduptest.NewDatabase()
	store := db.NewStore()
	for i := range 5 {
		r := record(fmt.Sprintf("order-%d:paid", i), "10 EUR")
		_ = store.InTx(ctx, []dedup.Record{r}, func(*deduptest.Tx, []dedup.Claim) error { return nil })
	}
	db.Age(16 * 24 * time.Hour) // a day past the default window

	var purger dedup.Purger = store
	by := dedup.Sweep{Owner: "node-1", Lease: time.Minute, Limit: 2}
	for {
		swept, err := purger.Purge(ctx, by)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(swept.Keys, swept.Lag.Round(time.Hour), swept.Done)
		if swept.Done {
			return
		}
	}
	// Output:
	// 2 24h0m0s false
	// 2 24h0m0s false
	// 1 24h0m0s true
}

// Only one owner sweeps at a time. After its lease has ended, another one may.
func ExampleSweep() {
	ctx := context.Background()
	db := deduptest.NewDatabase()
	store := db.NewStore()
	purge := func(owner string) {
		swept, err := store.Purge(ctx, dedup.Sweep{Owner: owner, Lease: time.Minute, Limit: 100})
		fmt.Println(owner, "busy:", swept.Busy, err)
	}
	purge("node-1")
	purge("node-2")
	db.Age(2 * time.Minute)
	purge("node-2")
	// Output:
	// node-1 busy: false <nil>
	// node-2 busy: true <nil>
	// node-2 busy: false <nil>
}

func ExampleSweepResult() {
	swept := dedup.SweepResult{Keys: 1000, Lag: 3 * time.Hour}
	fmt.Println(swept.Busy, swept.Done, swept.Lag > time.Hour)
	// Output: false false true
}

func ExampleSweeper() {
	db := deduptest.NewDatabase()
	store := db.NewStore()
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 3 {
		r := record(fmt.Sprintf("order-%d:paid", i), "10 EUR")
		_ = store.InTx(ctx, []dedup.Record{r}, func(*deduptest.Tx, []dedup.Claim) error { return nil })
	}
	db.Age(16 * 24 * time.Hour)

	sweeper, err := dedup.NewSweeper(dedup.SweeperConfig{
		Store:  store,
		Logger: slog.New(slog.DiscardHandler),
		OnAlarm: func(a dedup.Alarm) { // page somebody
			fmt.Println("keys are forgotten", a.Lag.Round(time.Hour), "late")
			cancel()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sweeper.Run(ctx)) // in an errgroup, beside the consumers
	// Output:
	// keys are forgotten 24h0m0s late
	// <nil>
}

func ExampleSweeperConfig() {
	_, err := dedup.NewSweeper(dedup.SweeperConfig{
		Store: deduptest.NewStore(), Every: time.Hour,
		AlarmAfter: time.Minute,
	})
	fmt.Println(err)
	// Output: dedup: SweeperConfig.AlarmAfter 1m0s is not longer than Every 1h0m0s: every pass would be late
}

func ExampleAlarm() {
	report := func(a dedup.Alarm) {
		if a.Err != nil && a.Failures < 5 {
			return // it tries again
		}
		fmt.Println(a.Lag, a.Failures, a.Err)
	}
	report(dedup.Alarm{Err: errors.New("connection refused"), Failures: 1})
	report(dedup.Alarm{Lag: 3 * time.Hour})
	// Output: 3h0m0s 0 <nil>
}
