package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox/driver"
)

// park parks the first message of a key with n more messages, and waits until those have followed it.
func (d *holding) park(t *testing.T, n int) (head driver.Leased, followers []string) {
	t.Helper()
	d.enqueue(t, "head")
	head = d.lease(t)[0]
	d.settle(t, driver.Outcome{Leased: head, Verdict: driver.Parked, Err: errors.New("refused")})
	for i := range n {
		followers = append(followers, fmt.Sprint(i))
	}
	d.enqueue(t, followers...)
	d.until(t, "all followers wait in outbox_parked", func() bool {
		return d.strings(t, `SELECT count(*)::text FROM outbox_parked WHERE waiting`)[0] == fmt.Sprint(n)
	})
	return head, followers
}

// unpark unparks one message.
func unpark(ctx context.Context, s *pgxstore.Store, seq int64) error {
	return again(s, func() error {
		n, err := s.Outbox().Unpark(ctx, seq)
		if n != 1 && err == nil {
			err = fmt.Errorf("unparked %d, want 1", n)
		}
		return err
	})
}

func (d *holding) leaseAll(t *testing.T, n int) (ids []string) {
	t.Helper()
	for len(ids) < n {
		leased := d.lease(t)
		if len(leased) == 0 {
			break
		}
		ids = append(ids, leasedIDs(leased)...)
		settle(t, d, driver.Sent, leased...)
	}
	return ids
}

// When more followers return than one transaction moves, they keep their order, and no hold is left.
func TestOutboxUnparkBringsBackManyFollowers(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		head, followers := d.park(t, 2500)
		d.enqueue(t, "later")
		unparked := make(chan error, 1)
		go func() { unparked <- unpark(t.Context(), d.store, head.Seq) }()
		var got []string // also leased while messages return
		for began := time.Now(); len(got) < 2502 && time.Since(began) < 2*time.Minute; {
			got = append(got, d.leaseAll(t, 2502)...)
		}
		if err := <-unparked; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, slices.Concat([]string{"head"}, followers, []string{"later"})) {
			t.Errorf("leased %d messages, not all 2502 in their old order", len(got))
		}
		if left := d.strings(t, `SELECT format('%s from %s', key, from_seq) FROM outbox_held`); len(left) > 0 {
			t.Errorf("keys are still held back: %v", left)
		}
	})
}

// A process that crashes between two steps of Discard leaves followers that wait behind no parked message. Maintain
// returns them, and until then later messages of the key do not overtake them.
func TestOutboxTidyFinishesADeadDiscard(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		head, followers := d.park(t, 20)
		d.exec(t, `DELETE FROM outbox_parked WHERE seq = $1`, head.Seq)
		d.enqueue(t, "later")
		if got := d.lease(t); len(got) > 0 {
			t.Errorf("leased %v past messages that wait", leasedIDs(got))
		}
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// its first Maintain searches for such keys, and then one Maintain every minute
		other := newHoldingOn(t, d.outboxDB)
		d.until(t, "the followers are pending", func() bool {
			other.maintain(t)
			return d.strings(t, `SELECT count(*)::text FROM outbox_parked`)[0] == "0"
		})
		want := append(followers, "later")
		if got := other.leaseAll(t, 21); !slices.Equal(got, want) {
			t.Errorf("leased %v, want %v", got, want)
		}
	})
}

// A deferred key with very many messages at the front of its shard does not block the messages of other keys.
func TestOutboxLeaseLooksBehindManyHeldMessages(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		d.enqueue(t, "head")
		head := d.lease(t)[0]
		d.exec(t, `INSERT INTO outbox_messages (shard, id, topic, key, payload) SELECT $1, i::text, 'events', 'k', '' FROM generate_series(1, 30000) AS i`, head.Shard)
		settle(t, d, driver.Deferred, head)
		d.exec(t, `INSERT INTO outbox_messages (shard, id, topic, key, payload) VALUES ($1, 'other', 'events', 'other', '')`, head.Shard)
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"other"}) {
			t.Errorf("leased %v, want the message of another key behind 30,000 that wait", got)
		}
	})
}
