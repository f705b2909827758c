package pgxstore_test

import (
	"testing"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// Many delayed messages come due at the same time, more than one statement moves. Polls move the rest. Otherwise RunOnce would leave it
// behind, and Run would publish no more of them in a second than one Maintain moves.
func TestOutboxLeaseMovesAllThatIsDue(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	const n = 5001
	d.exec(t, `INSERT INTO outbox_delayed (not_before, shard, id, topic, payload)
		SELECT now() - interval '1 minute', g % (SELECT count(*) FROM txonce_shards), g::text, 'events', 'x' FROM generate_series(1, $1::int) g`, n)
	d.maintain(t)
	found := 0
	for {
		msgs, err := d.Lease(t.Context(), outbox.Want{Limit: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			break
		}
		found += len(msgs)
		outcomes := make([]outbox.Outcome, len(msgs))
		for i := range msgs {
			outcomes[i] = outbox.Outcome{Leased: msgs[i], Verdict: outbox.Sent}
		}
		d.settle(t, outcomes...)
	}
	if found != n {
		t.Errorf("leased %d messages of %d that are due", found, n)
	}
}
