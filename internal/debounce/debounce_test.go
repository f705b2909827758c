package debounce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/debounce"
)

// The first call runs at once, calls within the pause share one run after it, and the last call is never dropped.
func TestCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 5 * time.Millisecond
		var c debounce.Caller
		start := time.Now()
		var runs []time.Duration
		call := func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // like a handler's context
			c.Call(ctx, pause, func(ctx context.Context) {
				if ctx.Err() != nil {
					t.Error("the function gets a context that has ended")
				}
				runs = append(runs, time.Since(start))
			})
		}
		for range 10 { // at 0, 1, ..., 9 ms
			call()
			<-time.After(time.Millisecond)
		}
		synctest.Wait()
		<-time.After(pause)
		synctest.Wait()
		want := []time.Duration{0, pause, 2 * pause}
		if len(runs) != len(want) {
			t.Fatalf("runs at %v, want %v", runs, want)
		}
		for i := range want {
			if runs[i] != want[i] {
				t.Fatalf("runs at %v, want %v", runs, want)
			}
		}
		<-time.After(time.Second)
		call()
		synctest.Wait()
		if len(runs) != len(want)+1 || runs[len(want)] != time.Since(start) {
			t.Errorf("runs at %v, want one more at once", runs)
		}
		<-time.After(pause) // the goroutine ends
	})
}
