package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A pause ends when its message has left the outbox in another way, such as through another relay: a gauge would show
// it for ever.
func TestRelayForgetsPausesOfOthersMessages(t *testing.T) {
	for what, fault := range map[string]error{
		"topic":     errMissing,
		"publisher": &outbox.UnavailableError{Err: errors.New("connection refused")},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				var paused, begun atomic.Int64
				r := newRelay(t, relay.Config{
					Queue: memory, Publisher: publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
						errs := make([]error, len(msgs))
						for i := range errs {
							errs[i] = fault
						}
						return errs
					}),
					Trace: &relay.Trace{
						Paused: func(context.Context, observe.Pause) {
							paused.Add(1)
							begun.Add(1)
						},
						Resumed: func(context.Context, observe.Pause) { paused.Add(-1) },
					},
				})
				runFor := func(d time.Duration) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					if err := r.Run(ctx); err != nil {
						t.Fatal(err)
					}
				}
				enqueue(t, memory, to("orders", "a1"))
				runFor(10 * time.Minute)
				if paused.Load() != 1 || begun.Load() != 1 {
					t.Fatalf("%d pauses while the message waits, %d began; want 1", paused.Load(), begun.Load())
				}
				_, stop := start(t, relay.Config{Queue: memory, Publisher: &outboxtest.FakePublisher{}})
				<-time.After(2 * time.Minute)
				stop()
				if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
					t.Fatal(got)
				}
				runFor(5 * time.Minute)
				if paused.Load() != 0 {
					t.Errorf("%d pauses while no message waits", paused.Load())
				}
			})
		})
	}
}
