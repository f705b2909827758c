package sqlstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// polling is a session that holds all shards of an outbox on PostgreSQL.
type polling struct {
	session
	next int
}

func newPolling(t *testing.T) *polling {
	t.Helper()
	d := openPostgres(t, testdb.Postgres(t))
	n := newNode(t, openDB(t, "pgx", d.dsn), sqlstore.Config{Dialect: sqlstore.Postgres})
	p := &polling{session: open(t, n, time.Hour)}
	renew(t, p.session)
	return p
}

// enqueue commits n messages, and returns their IDs.
func (p *polling) enqueue(t *testing.T, n int) (ids []string) {
	t.Helper()
	var msgs []outbox.Message
	for range n {
		p.next++
		id := fmt.Sprintf("%06d", p.next)
		ids, msgs = append(ids, id), append(msgs, outbox.Message{ID: id, Topic: "events", OrderingKey: fmt.Sprint(p.next % 100), Payload: []byte("{}")})
	}
	enqueue(t, p.n, msgs...)
	return ids
}

func (p *polling) maintain(t *testing.T) {
	t.Helper()
	if err := p.tryTidy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// finds leases and settles messages until all of ids were found. It calls meanwhile between polls.
func (p *polling) finds(t *testing.T, ids []string, meanwhile func()) {
	t.Helper()
	var got []string
	for began := time.Now(); len(got) < len(ids); meanwhile() {
		msgs := lease(t, p.session)
		settle(t, p.session, outcomes(driver.Sent, msgs...))
		for _, m := range msgs {
			got = append(got, m.ID)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("found %d of %d messages", len(got), len(ids))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		t.Errorf("leased %v, want %v", got, ids)
	}
}

// passes publishes n messages and polls until the low-water mark is above them.
func (p *polling) passes(t *testing.T, n int) {
	t.Helper()
	p.finds(t, p.enqueue(t, n), func() {})
	var last int64
	if err := p.n.db.QueryRow(`SELECT last_value FROM outbox_seq`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); lowWatermark(p.Session) <= last; lease(t, p.session) {
		if p.maintain(t); time.Since(began) > time.Minute { // another transaction of the server may still be writing
			t.Fatalf("the low-water mark is %d, want more than %d", lowWatermark(p.Session), last)
		}
	}
}

// The low-water mark passes what was published, without Maintain too where many messages are published.
func TestOutboxPostgresPassesWhatWasPublished(t *testing.T) {
	t.Parallel()
	p := newPolling(t)
	p.passes(t, 50)
	p.finds(t, p.enqueue(t, 1000), func() {})
	for began := time.Now(); lowWatermark(p.Session) <= 1000; lease(t, p.session) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the low-water mark is %d after 1050 messages", lowWatermark(p.Session))
		}
		p.finds(t, p.enqueue(t, 100), func() {})
	}
}

// Polls do not read messages again that wait. So they find none even after a person has ended their waits in the table, but find new
// messages, and all messages after some have returned to the shard.
func TestOutboxPostgresSkipsMessagesThatWait(t *testing.T) {
	t.Parallel()
	p := newPolling(t)
	p.enqueue(t, 3000)
	deferred := outcomes(driver.Deferred, lease(t, p.session)...)
	last := int64(0)
	for i := range deferred {
		deferred[i].Delay, last = time.Hour, max(last, deferred[i].Seq)
	}
	settle(t, p.session, deferred)
	for began := time.Now(); skip(p.Session) != last; p.maintain(t) {
		if msgs := lease(t, p.session); len(msgs) > 0 || time.Since(began) > time.Minute {
			t.Fatalf("%d messages leased that wait; the skip is %d, want %d", len(msgs), skip(p.Session), last)
		}
	}
	exec(t, p.n.db, `DELETE FROM outbox_held`)
	most := 0 // the last message of each shard
	if err := p.n.db.QueryRow(`SELECT count(DISTINCT shard) FROM outbox_messages`).Scan(&most); err != nil {
		t.Fatal(err)
	}
	p.enqueue(t, 1)
	msgs := lease(t, p.session)
	if len(msgs) > most+1 || msgs[len(msgs)-1].Seq <= last {
		t.Errorf("%d messages leased, want the new one and at most the last one in each of %d shards", len(msgs), most)
	}
	settle(t, p.session, outcomes(driver.Returned, msgs...))
	exec(t, p.n.db, `UPDATE txonce_shards SET returned = returned + 1`)
	if msgs := lease(t, p.session); len(msgs) != 3001 {
		t.Errorf("%d messages leased after messages have returned, want 3001", len(msgs))
	}
}

// A poll notices a sequence that was set back. Where it has passed its last value again, a check of the table finds the messages.
func TestOutboxPostgresFindsWhatIsBelowTheWatermark(t *testing.T) {
	t.Parallel()
	p := newPolling(t)
	p.passes(t, 50)
	exec(t, p.n.db, `SELECT setval('outbox_seq', 10)`)
	p.finds(t, p.enqueue(t, 3), func() {}) // no Maintain
	p.passes(t, 50)
	exec(t, p.n.db, `SELECT setval('outbox_seq', 10)`)
	p.finds(t, p.enqueue(t, 100), func() { p.maintain(t) })
	p.passes(t, 3)
}
