package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

type refuseAll struct{ outbox.Publisher }

func (f refuseAll) Publish(ctx context.Context, msgs []outbox.Message) []error {
	errs := f.Publisher.Publish(ctx, msgs)
	if errs == nil {
		errs = make([]error, len(msgs))
	}
	for i := range msgs {
		if len(msgs[i].OrderingKey) > outbox.MaxOrderingKey {
			errs[i] = errors.New("the broker refuses it")
		}
	}
	return errs
}

// Another program has written a row whose key is too long for the index of keys that are held back. When it fails, it
// is parked alone, and the others of its batch are settled: otherwise each start would publish them again.
func TestOutboxRelaySetsAsideWhatIsRefused(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newOutboxDB(t, server, 4)
		if _, err := d.pool.Exec(t.Context(), `INSERT INTO outbox_messages (shard, id, topic, key, payload)
			SELECT 1, i, 'orders', CASE i WHEN 8 THEN (SELECT string_agg(sha256(g::text::bytea), '') FROM generate_series(1, 90) g) ELSE i::text::bytea END, ''
			FROM generate_series(1, 20) i`); err != nil {
			t.Fatal(err)
		}
		broker := &outboxtest.FakePublisher{}
		for range 3 {
			r, err := relay.New(relay.Config{Queue: d.store, Publisher: refuseAll{broker}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := len(broker.Published()); got != 20 {
			t.Errorf("20 messages were published %d times", got)
		}
		parked, err := d.store.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 1 || parked[0].ID != "8" {
			t.Errorf("parked %+v, %v; want the refused message alone", parked, err)
		}
	})
}
