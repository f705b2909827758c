package sqlstore_test

import (
	"testing"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A row that another program has written wrongly must not stop the relay. The relay parks it and publishes the others.
func TestOutboxRelayParksWhatItCannotRead(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		enqueue(t, n, messages("a", 2, 1)...)
		if _, err := n.db.ExecContext(t.Context(),
			`UPDATE outbox_messages SET headers = '{"count": 1}' WHERE seq = (SELECT first FROM (SELECT min(seq) AS first FROM outbox_messages) AS m)`); err != nil {
			t.Fatal(err)
		}
		publisher := &outboxtest.FakePublisher{}
		r, err := relay.New(relay.Config{Queue: n.Store, Publisher: publisher, ParkPolicy: outbox.SkipMessage})
		if err != nil {
			t.Fatal(err)
		}
		if published, err := r.RunOnce(t.Context()); err != nil || published != 1 {
			t.Errorf("published %d, %v; want the other message", published, err)
		}
		parked, err := n.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 1 || parked[0].Unreadable == nil || parked[0].Error == "" {
			t.Errorf("parked %+v, %v; want the message with the error", parked, err)
		}
	})
}
