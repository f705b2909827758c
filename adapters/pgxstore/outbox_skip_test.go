package pgxstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox/driver"
)

// Polls do not read messages again that wait. So they find none even after a person has ended their waits in the table,
// but find other messages, and all messages after some have returned to the shard.
func TestOutboxLeaseSkipsMessagesThatWait(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		var ids []string
		for i := range 100 { // of one key
			ids = append(ids, fmt.Sprintf("%03d", i))
		}
		d.enqueue(t, ids...)
		leased := d.lease(t)
		settle(t, d, driver.Deferred, leased[0])
		settle(t, d, driver.Returned, leased[1:]...)
		leaseUntilSkip := func(seq int64, want ...string) {
			t.Helper()
			d.until(t, "polls skip messages that wait", func() bool {
				found := d.lease(t)
				if !slices.Equal(leasedIDs(found), want) {
					t.Fatalf("leased %v, want %v", leasedIDs(found), want)
				}
				settle(t, d, driver.Returned, found...)
				return pgxstore.Skip(d.Session) > leased[0].Seq
			})
			if got := pgxstore.Skip(d.Session); got != seq {
				t.Fatalf("polls skip the messages below %d, want those below %d", got, seq)
			}
		}
		between, last := leased[50].Seq, leased[99].Seq
		d.exec(t, `UPDATE outbox_messages SET key = 'other' WHERE seq = $1`, between)
		leaseUntilSkip(between, ids[50])
		d.exec(t, `UPDATE outbox_messages SET key = 'k' WHERE seq = $1`, between)
		d.exec(t, `UPDATE txonce_shards SET returned = returned + 1`)
		leaseUntilSkip(last)
		d.exec(t, `DELETE FROM outbox_held`)
		d.exec(t, `UPDATE outbox_messages SET key = 'other' WHERE seq = $1`, last)
		for _, notified := range []bool{false, true} {
			d.store.Wake(t.Context())
			found, err := d.Lease(t.Context(), driver.Want{Limit: 1000, Notified: notified})
			if err != nil || !slices.Equal(leasedIDs(found), ids[99:]) {
				t.Errorf("leased %v, %v, want only the last message", leasedIDs(found), err)
			}
			settle(t, d, driver.Returned, found...)
		}
		d.exec(t, `UPDATE txonce_shards SET returned = returned + 1`)
		if found := d.lease(t); !slices.Equal(leasedIDs(found), ids) {
			t.Errorf("leased %v after messages have returned, want all", leasedIDs(found))
		}
	})
}
