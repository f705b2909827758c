package pgxstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// A relay in another process learns which shards have new messages, so that it need not scan the others. Every shard is
// named.
func TestOutboxNotifiesOfShards(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	relay := newStore(t, pgxstore.Config{Pool: db.pool})
	wake, take, stop := pgxstore.ListenForShards(t.Context(), relay)
	defer stop()
	awaitWake(t, wake)
	if _, all := take(); !all {
		t.Error("the start of LISTEN is not about all shards")
	}
	commit := func(ids ...string) {
		t.Helper()
		err := db.inTx(t.Context(), func(tx pgx.Tx) error {
			for _, id := range ids {
				if err := db.store.Enqueue(t.Context(), tx,
					outbox.Message{ID: id, Topic: "events", OrderingKey: id}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	commit("first") // the number of shards is not known before
	awaitWake(t, wake)
	take()
	var want []int
	ids := []string{"a", "b", "c", "d", "e"}
	for _, id := range ids {
		if n := driver.Shard(&outbox.Message{OrderingKey: id}, 64); !slices.Contains(want, n) {
			want = append(want, n)
		}
	}
	slices.Sort(want)
	commit(ids[0])
	commit(ids[1:]...) // these may share a NOTIFY with the first one
	var got []int
	for len(got) < len(want) {
		awaitWake(t, wake)
		shards, all := take()
		if all {
			t.Fatal("notified of all shards")
		}
		got = append(got, shards...)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("notified of shards %v, want %v", got, want)
	}
	db.store.Wake(context.WithoutCancel(t.Context()))
	awaitWake(t, wake)
	if _, all := take(); !all {
		t.Error("Wake is not about all shards")
	}
}
