package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// Several goroutines find that a pause begins and ends. When it has ended, that is what was reported last: otherwise the process would
// not be ready until the next pause.
func TestTheEndOfAPauseIsReportedLast(t *testing.T) {
	errDown := errors.New("the database is down")
	for _, tc := range []struct {
		name string
		make func(report *hooks.Pause) (fails, works func(context.Context, error))
	}{
		{"database", consumer.Faults},
		{"budget", func(report *hooks.Pause) (fails, works func(context.Context, error)) {
			return consumer.Budget(consumer.ParkLimit{Burst: 2, PerMinute: 60_000_000}, report)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var paused atomic.Bool
			quiet := slog.New(slog.DiscardHandler)
			fails, works := tc.make(&hooks.Pause{
				Logger: quiet, Panics: &hooks.Panics{Logger: quiet}, Why: func(error) string { return "" },
				Paused:  func(context.Context, observe.Pause) { paused.Store(true) },
				Resumed: func(context.Context, observe.Pause) { paused.Store(false) },
			})
			for round := range 20_000 {
				var workers sync.WaitGroup
				for i := range 4 {
					workers.Go(func() {
						for range 3 {
							if i%2 == 0 {
								fails(t.Context(), errDown)
							} else {
								works(t.Context(), nil)
							}
						}
					})
				}
				workers.Wait()
				for range 100 { // works for sure
					works(t.Context(), nil)
				}
				if paused.Load() {
					t.Fatalf("round %d: the pause is over, and Resumed was not called", round)
				}
			}
		})
	}
}
