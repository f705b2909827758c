package pgxstore_test

import (
	"testing"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A row that another program has written unreadably does not stop the relay: it is parked, and the other messages are
// published.
func TestOutboxRelayParksWhatItCannotRead(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newOutboxDB(t, server, 4)
		if _, err := d.pool.Exec(t.Context(), `INSERT INTO outbox_messages (shard, id, topic, key, payload, headers)
			VALUES (1, 'theirs', 'orders', 'k', '', '{"count": 1}'), (1, 'ours', 'orders', 'k', '', '{"count": "1"}')`); err != nil {
			t.Fatal(err)
		}
		publisher := &outboxtest.FakePublisher{}
		r, err := relay.New(relay.Config{Queue: d.store, Publisher: publisher, ParkPolicy: outbox.SkipMessage})
		if err != nil {
			t.Fatal(err)
		}
		if published, err := r.RunOnce(t.Context()); err != nil || published != 1 {
			t.Errorf("published %d, %v; want the other message", published, err)
		}
		parked, err := d.store.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 1 || parked[0].ID != "theirs" || parked[0].Unreadable == nil ||
			parked[0].Error == "" {
			t.Errorf("parked %+v, %v; want the message with the error", parked, err)
		}
	})
}
