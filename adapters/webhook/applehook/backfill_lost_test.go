package applehook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
)

// After a failover that lost commits, and after the restore of a backup, the checkpoint is as old as the claims, so the
// next pass fetches what was lost. The process may be the same or another one.
func TestBackfillClosesTheGapAfterALoss(t *testing.T) {
	for name, back := range map[string]func(*deduptest.Database, *deduptest.Snapshot){
		"failover": (*deduptest.Database).Promote, "restore": (*deduptest.Database).Restore,
	} {
		for _, restarts := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, another process: %v", name, restarts), func(w *world) {
				first, b := w.missed(20), w.backfill()
				w.pass(b)
				snapshot := w.store.Database().Snapshot()
				w.wait(20 * time.Hour)
				second := w.missed(15)
				w.pass(b)
				w.wait(5 * time.Hour)
				w.pass(b)
				w.once(append(first, second...))
				back(w.store.Database(), snapshot)
				if restarts {
					b = w.backfill()
				}
				w.pass(b)
				w.once(append(first, second...))
			})
		}
	}
}
