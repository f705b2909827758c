package stripehook_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/dedup/deduptest"
)

// After a failover that lost commits, and after the restore of a backup, the checkpoint is as old as the claims, so the
// next pass fetches what was lost, also events that webhooks had delivered. The process may be the same or another one.
func TestBackfillClosesTheGapAfterALoss(t *testing.T) {
	for name, back := range map[string]func(*deduptest.Database, *deduptest.Snapshot){
		"failover": (*deduptest.Database).Promote, "restore": (*deduptest.Database).Restore,
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					w.stripe.add(events(300, 10*time.Minute)...)
					b := w.backfill(t)
					w.once(t, b)
					snapshot := w.store.Database().Snapshot()
					<-time.After(5 * time.Hour) // longer than the overlap of two passes
					missed, received := events(400, time.Minute)[300:], event(500, time.Second)
					w.stripe.add(append(missed, received)...)
					w.receive(t, stripehook.Config{}, received)
					w.once(t, b)
					<-time.After(5 * time.Hour)
					w.once(t, b)
					w.wantEffects(t, 401)
					back(w.store.Database(), snapshot)
					if n := w.effects(); n != 300 {
						t.Fatalf("%d effects are left, want 300", n)
					}
					if restarts {
						b = w.backfill(t)
					}
					w.once(t, b)
					w.wantEffects(t, 401)
				})
			})
		}
	}
}
