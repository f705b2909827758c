package stripehook_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

// TestCheckpointStaysBehindTheClock: the time of an event can be ahead of the clock, as it is for Stripe's test clocks.
// The events that come later are older, and must be fetched.
func TestCheckpointStaysBehindTheClock(t *testing.T) {
	month := 30 * 24 * time.Hour
	t.Run("one event ahead", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(event(1, time.Hour), event(2, -month))
			b := w.backfill(t)
			w.once(t, b)
			<-time.After(24 * time.Hour)
			w.stripe.add(event(3, 12*time.Hour))
			w.once(t, b)
			w.wantEffects(t, 2) // the event ahead is parked
		})
	})
	t.Run("more events ahead than a pass keeps in memory", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(events(300, time.Minute)...)
			var ahead []stripehook.Event
			for i := range 300 {
				ahead = append(ahead, event(1000+i, -month-time.Duration(i)*time.Minute))
			}
			w.stripe.add(ahead...)
			b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
				_ *stripehook.ClientConfig,
			) {
				cfg.MaxPages = 1
			})
			w.once(t, b)
			<-time.After(24 * time.Hour)
			w.stripe.add(event(3000, 12*time.Hour))
			w.once(t, b)
			w.wantEffects(t, 301) // the events ahead are parked
		})
	})
	t.Run("more events ahead than a pass keeps in memory, while each request takes longer than a second", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.stripe.add(events(3, time.Minute)...)
			for i := range 300 {
				w.stripe.add(event(1000+i, -month-time.Duration(i)*time.Minute))
			}
			w.stripe.before = func(int) { <-time.After(2 * time.Second) }
			b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx],
				_ *stripehook.ClientConfig,
			) {
				cfg.MaxPages = 1
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			if err := b.Once(ctx); err != nil {
				t.Errorf("after %d requests: %v", len(w.stripe.taken()), err)
			}
			w.wantEffects(t, 3) // the events ahead are parked
		})
	})
	t.Run("a checkpoint that was saved ahead of the clock", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			checkpoint, err := webhook.NewCheckpoint(w.store, "stripe", window)
			if err != nil {
				t.Fatal(err)
			}
			saved := fmt.Sprintf(`{"version":1,"scope":"stripe/live","seen":%d}`, time.Now().Add(month).Unix())
			if err := checkpoint.Save(t.Context(), []byte(saved)); err != nil {
				t.Fatal(err)
			}
			w.stripe.add(event(1, time.Minute))
			var logs strings.Builder
			w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) {
				cfg.Logger = slog.New(slog.NewTextHandler(&logs, nil))
			}))
			w.wantEffects(t, 1)
			if !strings.Contains(logs.String(), "the checkpoint is in the future") {
				t.Errorf("not logged: %s", logs.String())
			}
		})
	})
}
