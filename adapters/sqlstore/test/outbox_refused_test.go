package sqlstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// refuseHolds are statements that make a database refuse to hold a key back.
var refuseHolds = map[string][]string{
	"sqlite":   {`CREATE TRIGGER refuse BEFORE INSERT ON outbox_held BEGIN SELECT RAISE(ABORT, 'no'); END`},
	"mysql":    {`ALTER TABLE outbox_held ADD CONSTRAINT refuse CHECK (from_seq < 0)`},
	"postgres": {`ALTER TABLE outbox_held ADD CONSTRAINT refuse CHECK (from_seq < 0)`},
}

type failing struct {
	outbox.Publisher
	id string
}

func (f failing) Publish(ctx context.Context, msgs []outbox.Message) []error {
	errs := f.Publisher.Publish(ctx, msgs)
	if errs == nil {
		errs = make([]error, len(msgs))
	}
	for i := range msgs {
		if msgs[i].ID == f.id {
			errs[i] = errors.New("the broker refuses it")
		}
	}
	return errs
}

// The database refuses to store what follows from one message that was not published. The relay parks it alone, and
// settles the others of its batch: otherwise each start would publish them again.
func TestOutboxRelaySetsAsideWhatIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		n := db.open(deduptest.Options{})
		msgs := messages("a", 20, 20)
		enqueue(t, n, msgs...)
		for _, s := range refuseHolds[db.dialect] {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		broker := &outboxtest.FakePublisher{}
		for range 3 {
			r, err := relay.New(relay.Config{Queue: n.Store, Publisher: failing{broker, msgs[7].ID}})
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
		parked, err := n.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 1 || parked[0].ID != msgs[7].ID {
			t.Errorf("parked %+v, %v; want the refused message alone", parked, err)
		}
	})
}
