package applehook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The database goes back while a pass is under way. What was lost is fetched again, although the pass is further.
func TestBackfillClosesTheGapOfALossDuringAPass(t *testing.T) {
	inBubble(t, "failover", func(w *world) {
		var all []string
		for range 40 {
			all = append(all, w.missed(5)...)
			w.wait(day)
		}
		var snapshot *deduptest.Snapshot
		n := 0
		w.handle = func(context.Context, *deduptest.Tx, *consumer.Message) error {
			switch n++; n {
			case 80:
				snapshot = w.store.Database().Snapshot()
			case 140:
				w.store.Database().Promote(snapshot)
				return errors.New("the connection is gone")
			}
			return nil
		}
		b := w.backfill()
		_, _ = b.Pass(w.Context()) // it may fail: the next one begins where the checkpoint is
		w.wait(time.Hour)
		w.pass(b)
		w.once(all)
	})
}
