package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
	dedup "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// knowing is a Queue whose database knows how far its relays are.
type knowing struct {
	driver.Queue
	dedup.Positions
	dedup.KeyReader
}

// A relay that has published messages of transactions that the database has lost says so once, with their time. A
// restart of the database is no loss.
func TestLostPublicationsAreReported(t *testing.T) {
	for _, tt := range []struct {
		name string
		back func(*deduptest.Database, *deduptest.Snapshot)
		idle bool // nothing is published afterwards
		want int
	}{
		{"failover", (*deduptest.Database).Promote, false, 1},
		{"failover of an idle relay", (*deduptest.Database).Promote, true, 1},
		{"restore", (*deduptest.Database).Restore, false, 1},
		{"restart", func(db *deduptest.Database, _ *deduptest.Snapshot) { db.Promote(db.Snapshot()) }, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, memory := deduptest.NewDatabase(), outboxtest.NewMemory()
				store := db.NewStore()
				var found []observe.Loss
				_, stop := start(t, relay.Config{
					Queue: knowing{memory, store, store}, Publisher: new(outboxtest.FakePublisher),
					Trace: &relay.Trace{WentBack: func(_ context.Context, l observe.Loss) { found = append(found, l) }},
				})
				publish := func(from, to int) {
					for i := from; i < to; i++ {
						enqueueIDs(t, memory, fmt.Sprintf("a%d", i))
						<-time.After(100 * time.Millisecond)
					}
				}
				publish(0, 100) // for 10 s
				snapshot, from := db.Snapshot(), time.Now()
				publish(100, 200)
				to := time.Now()
				tt.back(db, snapshot)
				if !tt.idle {
					publish(200, 220)
				}
				<-time.After(3 * time.Minute)
				stop()
				if len(found) != tt.want {
					t.Fatalf("%d losses, want %d: %+v", len(found), tt.want, found)
				}
				if tt.want == 0 {
					return
				}
				l := found[0]
				if l.From.After(from) || from.Sub(l.From) > 6*time.Second || l.To.Before(to.Add(-200*time.Millisecond)) ||
					l.To.Sub(to) > 5*time.Second || l.Messages < 100 || l.Messages > 200 || l.Name != observe.Relays {
					t.Errorf("lost 100 messages from %v to %v: reported %+v", from, to, l)
				}
				rows, err := store.ListPositions(t.Context(), observe.Relays)
				if err != nil || len(rows) != 1 || rows[0].Source != dedup.SourcePublished || rows[0].Rewind.At.IsZero() {
					t.Errorf("the database has %+v, %v", rows, err)
				}
			})
		})
	}
}
