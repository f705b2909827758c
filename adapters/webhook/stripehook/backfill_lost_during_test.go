package stripehook_test

import (
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The database goes back while a pass is under way. What was lost is fetched again, although the pass is further.
func TestBackfillClosesTheGapOfALossDuringAPass(t *testing.T) {
	for name, maxPages := range map[string]int{"of the only period": 100, "of one of several periods": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(events(1000, 10*time.Minute)...)
				var snapshot *deduptest.Snapshot
				w.fail = func(msg *consumer.Message) error {
					switch {
					case msg.ID == "evt_00450" && snapshot == nil:
						snapshot = w.store.Database().Snapshot()
					case msg.ID == "evt_00600" && snapshot != nil:
						w.store.Database().Promote(snapshot)
						snapshot = nil
						w.fail = nil
						return errors.New("the connection is gone")
					}
					return nil
				}
				b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) { cfg.MaxPages = maxPages })
				_ = b.Once(t.Context()) // it may fail: the next one begins where the checkpoint is
				w.once(t, b)
				w.wantEffects(t, 1000)
			})
		})
	}
}
