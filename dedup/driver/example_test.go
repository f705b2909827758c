package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
)

// A message from before the horizon cannot be proved to be new, because its row may have been deleted.
func ExampleWindowUse() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	uses := []driver.WindowUse{{Window: 7 * day, FirstRun: start, UsedUntil: start.Add(90 * day)}}
	forgotten := start.Add(30 * day) // all rows that expired by then are gone

	horizon := driver.Horizon(forgotten, uses)
	fmt.Println(horizon.Format(time.DateOnly))
	for _, days := range []int{20, 23, 25} {
		fmt.Println(days, driver.Provable(start.AddDate(0, 0, days), horizon))
	}
	// Output:
	// 2026-01-24
	// 20 false
	// 23 false
	// 25 true
}

// Call Register at start: it returns errors that would otherwise appear with the first claim. A consumer.Consumer does
// this by itself, and cannot have a name that the program has registered.
func ExampleRegistrar() {
	ctx := context.Background()
	var store driver.Registrar = deduptest.NewStore()
	fmt.Println(store.Register(ctx, "billing", dedup.DefaultWindow))
	err := store.Register(ctx, "billing", dedup.DefaultWindow)
	fmt.Println(errors.Is(err, dedup.ErrNameTaken), err)
	// Output:
	// <nil>
	// true dedup: consumer name is already in use on this store: an earlier call of Register has registered "billing": use another name, or call Release first
}
