package storekit_test

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup/storekit"
)

// A message from before the horizon cannot be proved to be new, because its row may have been deleted.
func ExampleWindowUse() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	uses := []storekit.WindowUse{{Window: 7 * day, FirstRun: start, UsedUntil: start.Add(90 * day)}}
	forgotten := start.Add(30 * day) // all rows that expired by then are gone

	horizon := storekit.Horizon(forgotten, uses)
	fmt.Println(horizon.Format(time.DateOnly))
	for _, days := range []int{20, 23, 25} {
		fmt.Println(days, storekit.Provable(start.AddDate(0, 0, days), horizon))
	}
	// Output:
	// 2026-01-24
	// 20 false
	// 23 false
	// 25 true
}
