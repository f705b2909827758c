package pgxstore_test

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// Many delayed messages come due at the same time, more than one statement moves. Polls move the rest. Otherwise
// RunOnce would leave it behind, and Run would publish no more of them in a second than one Maintain moves.
func TestOutboxLeaseMovesAllThatIsDue(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	const n = 5001
	d.exec(t, `INSERT INTO outbox_delayed (not_before, shard, id, topic, payload)
		SELECT now() - interval '1 minute', g % (SELECT count(*) FROM txonce_shards), g::text, 'events', 'x' FROM generate_series(1, $1::int) g`, n)
	d.maintain(t)
	found := 0
	for {
		msgs, err := d.Lease(t.Context(), driver.Want{Limit: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			break
		}
		found += len(msgs)
		outcomes := make([]driver.Outcome, len(msgs))
		for i := range msgs {
			outcomes[i] = driver.Outcome{Leased: msgs[i], Verdict: driver.Sent}
		}
		d.settle(t, outcomes...)
	}
	if found != n {
		t.Errorf("leased %d messages of %d that are due", found, n)
	}
}

// While a session moves due messages, another one moves none: later messages could be published first.
func TestOutboxMovesWhatIsDueInOrder(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	d.exec(t, `INSERT INTO outbox_delayed (not_before, shard, id, topic, key, payload)
		SELECT now() - interval '1 minute' + g * interval '1 s', 5, g::text, 'events', 'k', 'x' FROM generate_series(1, 3) g`)
	other, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(t.Context())
	if _, err := other.Exec(t.Context(), dialect.NewPostgresOutbox("").Due, 2); err != nil {
		t.Fatal(err)
	}
	d.maintain(t)
	if got := leasedIDs(d.lease(t)); len(got) > 0 {
		t.Errorf("leased %v before those that were due earlier", got)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.maintain(t)
	if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("leased %v, want 1, 2, 3", got)
	}
}
