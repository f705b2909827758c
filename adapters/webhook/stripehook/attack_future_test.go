package stripehook_test

import (
	"testing"
	"time"
)

// TestAttackCheckpointInTheFuture: one event whose creation time is ahead, as those of Stripe's test clocks are, must not move the checkpoint
// ahead of the events that come later.
func TestAttackCheckpointInTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, time.Hour), event(2, -30*24*time.Hour))
		b := w.backfill(t)
		w.once(t, b)
		time.Sleep(24 * time.Hour)
		w.stripe.add(event(3, time.Minute))
		w.once(t, b)
		time.Sleep(28 * 24 * time.Hour)
		w.once(t, b)
		time.Sleep(3 * 24 * time.Hour)
		w.once(t, b)
		if n := w.store.Database().Count("effect of evt_00003"); n != 1 {
			t.Errorf("%d effects of an event that Stripe lists, because an earlier one has a time in the future", n)
		}
	})
}
