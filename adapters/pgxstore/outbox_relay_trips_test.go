package pgxstore_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// tracedSession returns a session that holds all shards and whose round trips are counted. Its connections have their
// settings, and know their statements.
func tracedSession(t *testing.T) (*outboxDB, driver.Session, *roundTrips) {
	t.Helper()
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	s, err := store.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	d := &holding{db, s}
	for range 3 {
		if _, err := s.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.enqueue(t, "warm")
		settle(t, d, driver.Sent, d.lease(t)...)
		d.maintain(t)
		d.maintain(t) // the first one moves the watermark
		d.lease(t)
	}
	db.store = store
	trips.take()
	return db, s, trips
}

// What a relay asks the database. It does not depend on the machine. An idle relay leases once a second
// (Config.PollMax), maintains once a second and renews every five: 3 statements a second.
func TestOutboxRelayRoundTrips(t *testing.T) {
	db, s, trips := tracedSession(t)
	d := &holding{db, s}
	want := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, trips.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	d.lease(t)
	want("a regular poll", `select shard, token,`)
	d.maintain(t)
	want("Maintain with nothing to do", `select (select coalesce(pg_sequence_last_value('outbox_seq'::regclass),`)
	if _, err := s.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("Renew", `begin isolation level + update txonce_relays set + update txonce_relays r + select owner::text, name + select s.shard, s.token, + commit`)

	if err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error { return db.store.Enqueue(t.Context(), tx, messages("a", "b")...) }); err != nil {
		t.Fatal(err)
	}
	db.store.Wake(t.Context())
	trips.take()
	leased, err := s.Lease(t.Context(), driver.Want{Limit: 1000, Bytes: 1 << 20, Notified: true})
	if err != nil || len(leased) != 2 {
		t.Fatalf("leased %d: %v", len(leased), err)
	}
	want("a poll after a notification", `select s.shard, s.token,`)
	settle(t, d, driver.Sent, leased...)
	want("Settle", `begin isolation level + with mine as + delete from outbox_messages + commit`)
	if _, err := s.Lease(t.Context(), driver.Want{Limit: 1000, Notified: true}); err != nil {
		t.Fatal(err)
	}
	want("a poll without a notification about a held shard")
}

// A poll after a notification reads few rows at first. It finds the same as any poll, whatever is there.
func TestOutboxPollAfterNotification(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		for range 2 {
			if _, err := d.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d.maintain(t)
		message := func(id, key string, size int) outbox.Message {
			return outbox.Message{ID: id, Topic: "events", OrderingKey: key, Payload: make([]byte, size)}
		}
		many := func(key string, n int) (msgs []outbox.Message) {
			for i := range n {
				msgs = append(msgs, message(fmt.Sprint(key, i), key, 10))
			}
			return msgs
		}
		for _, tt := range []struct {
			name string
			msgs []outbox.Message
			want driver.Want
			n    int // how many the first Lease returns
		}{
			{"one", many("a", 1), driver.Want{Limit: 1000}, 1},
			{"as many as it reads at once", many("b", 63), driver.Want{Limit: 1000}, 63},
			{"more in one shard", many("c", 64), driver.Want{Limit: 1000}, 64},
			{"many", many("d", 300), driver.Want{Limit: 1000}, 300},
			{"over two shards", append(many("e", 40), many("f", 40)...), driver.Want{Limit: 1000}, 80},
			{"less than it finds", many("g", 30), driver.Want{Limit: 10}, 10},
			{
				"larger than all bytes",
				[]outbox.Message{message("h", "h", 5000)},
				driver.Want{Limit: 1000, Bytes: 1000},
				1,
			},
			{"larger together", []outbox.Message{message("i", "i", 400), message("j", "i", 400), message("k", "i", 400)}, driver.Want{Limit: 1000, Bytes: 1000}, 2},
			{"an empty payload", []outbox.Message{message("l", "l", 0)}, driver.Want{Limit: 1000, Bytes: 1000}, 1},
		} {
			err := again(d.store, func() error { // its notification names the shards
				return d.inTx(t.Context(), func(tx pgx.Tx) error { return d.store.Enqueue(t.Context(), tx, tt.msgs...) })
			})
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Notified = true
			var all []driver.Leased
			for range 100 {
				leased, err := d.Lease(t.Context(), tt.want)
				if err != nil {
					t.Fatal(err)
				}
				if len(all) == 0 && len(leased) != tt.n {
					t.Errorf("%s: leased %d at first, want %d", tt.name, len(leased), tt.n)
				}
				all = append(all, leased...)
				settle(t, d, driver.Sent, leased...)
				if len(leased) == 0 {
					break
				}
				d.store.Wake(t.Context()) // about any shard
			}
			if len(all) != len(tt.msgs) {
				t.Errorf("%s: leased %d, want %d", tt.name, len(all), len(tt.msgs))
				continue
			}
			for i, l := range all {
				if l.ID != tt.msgs[i].ID || !bytes.Equal(l.Payload, tt.msgs[i].Payload) {
					t.Errorf("%s: message %d is %q with %d bytes, want %q with %d", tt.name, i, l.ID, len(l.Payload),
						tt.msgs[i].ID, len(tt.msgs[i].Payload))
				}
			}
		}
	})
}
