package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// A Lease that begins at the low-water mark or behind messages that wait finds exactly the messages that a search of
// the whole table finds, after random commits, rollbacks, failures, parked and unparked messages, delayed messages,
// relays that come and go, and a sequence that is set back.
func TestOutboxWatermarkHidesNothing(t *testing.T) {
	type relay struct {
		driver.Queue
		outbox.Operations
		retryable func(error) bool
	}
	for name, of := range map[string]func(*testing.T, *outboxDB) relay{
		"pgxstore": func(t *testing.T, db *outboxDB) relay {
			s := newStore(t, pgxstore.Config{Pool: db.pool})
			return relay{s, s.Outbox(), s.Retryable}
		},
		"sqlstore": func(t *testing.T, db *outboxDB) relay {
			pool := stdlib.OpenDBFromPool(db.pool)
			t.Cleanup(func() { _ = pool.Close() })
			s, err := sqlstore.New(sqlstore.Config{DB: pool, Dialect: sqlstore.Postgres})
			if err != nil {
				t.Fatal(err)
			}
			return relay{s, s.Outbox(), s.Retryable}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers(t, func(t *testing.T, server func(testing.TB) string) {
				db := newOutboxDB(t, server, 12)
				r := of(t, db)
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				w := &watermarkWorld{
					outboxDB: db, queue: r.Queue, operations: r.Operations, retryable: r.retryable,
					rand: rand.New(rand.NewPCG(seed, 0)), done: map[string]bool{},
				}
				for range 500 {
					w.step(t)
				}
				w.finish(t)
			})
		})
	}
}

// watermarkWorld is an outbox, its relays, and the transactions that are open.
type watermarkWorld struct {
	*outboxDB
	queue      driver.Queue
	operations outbox.Operations
	retryable  func(error) bool
	rand       *rand.Rand
	opened     int
	sessions   []namedSession
	txs        []openTx
	enqueued   int
	committed  []string
	done       map[string]bool // published or discarded
	ending     bool            // the broker refuses nothing any more
}

type namedSession struct {
	driver.Session
	name string
}

type openTx struct {
	pgx.Tx
	ids []string
}

// do repeats f while the database is at fault.
func (w *watermarkWorld) do(t *testing.T, f func() error) {
	t.Helper()
	for began := time.Now(); ; pause(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if !w.retryable(err) || time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

func (w *watermarkWorld) step(t *testing.T) {
	if len(w.sessions) == 0 {
		w.open(t)
	}
	switch n := w.rand.IntN(100); {
	case n < 25:
		w.begin(t)
	case n < 45 && len(w.txs) > 0:
		w.end(t, w.rand.IntN(len(w.txs)), w.rand.IntN(4) > 0)
	case n < 75:
		w.lease(t, w.sessions[w.rand.IntN(len(w.sessions))])
	case n < 85:
		w.maintain(t)
	case n < 90:
		w.repair(t)
	case n < 93:
		w.timePasses(t)
	case n < 95 && len(w.sessions) < 3:
		w.open(t)
	case n < 97:
		w.close(t, w.rand.IntN(len(w.sessions)))
	case n < 99:
		w.setBack(t)
	default:
		w.renew(t)
	}
}

func (w *watermarkWorld) open(t *testing.T) {
	t.Helper()
	w.opened++
	s := namedSession{name: fmt.Sprint("relay-", w.opened)}
	w.do(t, func() (err error) {
		s.Session, err = w.queue.Open(t.Context(), driver.SessionOptions{Name: s.name, TTL: time.Hour})
		return err
	})
	w.sessions = append(w.sessions, s)
	w.renew(t)
}

// renew divides the shards.
func (w *watermarkWorld) renew(t *testing.T) {
	t.Helper()
	for range 2 {
		for _, s := range w.sessions {
			w.do(t, func() error {
				_, err := s.Renew(t.Context())
				return err
			})
		}
	}
}

func (w *watermarkWorld) close(t *testing.T, i int) {
	t.Helper()
	w.do(t, func() error { return w.sessions[i].Close(t.Context()) })
	w.sessions = slices.Delete(w.sessions, i, i+1)
	w.renew(t)
}

// begin begins a transaction that enqueues messages, some of which it takes back.
func (w *watermarkWorld) begin(t *testing.T) {
	t.Helper()
	if len(w.txs) == 4 {
		return
	}
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	o := openTx{Tx: tx}
	for range 1 + w.rand.IntN(3) {
		w.enqueued++
		m := message(fmt.Sprint(w.enqueued))
		m.OrderingKey = []string{"", "", "a", "b", "c", "d", "e"}[w.rand.IntN(7)]
		if w.rand.IntN(8) == 0 {
			m.NotBefore = time.Now().Add(time.Hour)
		}
		back := w.rand.IntN(6) == 0
		if back {
			_, err = tx.Exec(t.Context(), `SAVEPOINT back`)
		}
		err = errors.Join(err, w.store.Enqueue(t.Context(), tx, m))
		if back {
			_, failed := tx.Exec(t.Context(), `ROLLBACK TO back`)
			err = errors.Join(err, failed)
		} else {
			o.ids = append(o.ids, m.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if w.txs = append(w.txs, o); w.rand.IntN(2) == 0 { // the others commit after later messages
		w.end(t, len(w.txs)-1, true)
	}
}

func (w *watermarkWorld) end(t *testing.T, i int, commit bool) {
	t.Helper()
	o := w.txs[i]
	w.txs = slices.Delete(w.txs, i, i+1)
	if !commit {
		_ = o.Rollback(t.Context())
		return
	}
	if err := o.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.committed = append(w.committed, o.ids...)
}

// due are the messages that a session must find, by a search of the whole table.
const due = `SELECT c.id FROM outbox_messages c JOIN txonce_shards s USING (shard) JOIN txonce_relays r ON r.owner = s.owner
WHERE r.name = $1 AND coalesce(c.retry_at <= now(), true) AND NOT EXISTS (
	SELECT FROM outbox_held h WHERE h.shard = c.shard AND h.key = c.key AND c.seq >= h.from_seq AND h.until > now())
ORDER BY c.seq`

// lease compares the messages that s finds with those that were due before and those that are due after, and settles
// them.
func (w *watermarkWorld) lease(t *testing.T, s namedSession) (found int) {
	t.Helper()
	want := driver.Want{Limit: 1000}
	if store, ok := w.queue.(*pgxstore.Store); ok && w.rand.IntN(2) == 0 {
		store.Wake(t.Context()) // for all shards
		want.Notified = true
	}
	before := w.strings(t, due, s.name)
	var leased []driver.Leased
	w.do(t, func() (err error) {
		leased, err = s.Lease(t.Context(), want)
		return err
	})
	got, after := leasedIDs(leased), w.strings(t, due, s.name)
	missing := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(got, id) })
	inOrder := slices.DeleteFunc(slices.Clone(after), func(id string) bool { return !slices.Contains(got, id) })
	if len(missing) > 0 || !slices.Equal(got, inOrder) {
		t.Fatalf("%s leased %v; were due before: %v, after: %v", s.name, got, before, after)
	}
	var outcomes []driver.Outcome
	failed := map[string]bool{}
	for _, m := range leased {
		o := driver.Outcome{Leased: m, Verdict: driver.Returned}
		switch n := w.rand.IntN(20); {
		case failed[m.OrderingKey]: // and is returned
		case n < 14 || w.ending:
			o.Verdict = driver.Sent
		case n < 16:
			o.Verdict, o.Err, o.Delay = driver.Deferred, errors.New("refused"),
				time.Duration(w.rand.IntN(int(longestDelay)))
		case n < 18:
			o.Verdict, o.Err, o.ParkPolicy = driver.Parked, errors.New("refused"),
				outbox.ParkPolicy(w.rand.IntN(int(outbox.SkipMessage)+1))
		}
		failed[m.OrderingKey] = failed[m.OrderingKey] || o.Verdict != driver.Sent && m.OrderingKey != ""
		outcomes = append(outcomes, o)
	}
	w.do(t, func() error { return s.Settle(t.Context(), outcomes) })
	for _, o := range outcomes {
		if o.Verdict == driver.Sent {
			w.done[o.ID] = true
		}
	}
	return len(leased)
}

func (w *watermarkWorld) maintain(t *testing.T) {
	t.Helper()
	for _, s := range w.sessions {
		w.do(t, func() error { return s.Session.(driver.Maintainer).Maintain(t.Context()) })
	}
}

// repair unparks or discards one parked message.
func (w *watermarkWorld) repair(t *testing.T) {
	t.Helper()
	var parked []outbox.ParkedMessage
	w.do(t, func() (err error) {
		parked, err = w.operations.Parked(t.Context(), outbox.ParkedFilter{})
		return err
	})
	if len(parked) == 0 {
		return
	}
	m := parked[w.rand.IntN(len(parked))]
	repair := w.operations.Unpark
	if w.rand.IntN(4) == 0 {
		repair = w.operations.Discard
		w.done[m.ID] = true
	}
	w.do(t, func() error {
		_, err := repair(t.Context(), m.Seq)
		return err
	})
}

const longestDelay = 300 * time.Millisecond // of a message that failed

// timePasses ends all delays.
func (w *watermarkWorld) timePasses(t *testing.T) {
	t.Helper()
	pause(longestDelay)
	w.exec(t, `UPDATE outbox_delayed SET not_before = not_before - interval '2 hours'`)
	w.maintain(t)
}

// setBack sets the sequence back to the last message that is left, as a failover does. The relays of pgxstore notice it
// when they maintain, those of sqlstore when they lease.
func (w *watermarkWorld) setBack(t *testing.T) {
	t.Helper()
	if len(w.txs) > 0 {
		return
	}
	w.exec(t, `SELECT setval('outbox_seq', greatest(1, (SELECT max(seq) FROM (
		SELECT seq FROM outbox_messages UNION ALL SELECT seq FROM outbox_delayed UNION ALL SELECT seq FROM outbox_parked) AS m)))`)
	w.maintain(t)
	for _, s := range w.sessions {
		w.lease(t, s)
	}
}

// finish ends everything that waits. Then every message that was committed has been published or discarded.
func (w *watermarkWorld) finish(t *testing.T) {
	t.Helper()
	for len(w.txs) > 0 {
		w.end(t, 0, true)
	}
	if len(w.sessions) == 0 { // the last step has closed the last one
		w.open(t)
	}
	w.ending = true
	for range 100 {
		w.timePasses(t)
		w.do(t, func() error {
			_, err := outbox.UnparkAll(t.Context(), w.operations, outbox.ParkedFilter{})
			return err
		})
		for _, s := range w.sessions {
			w.lease(t, s)
		}
		if w.empty(t) {
			break
		}
	}
	for _, id := range w.committed {
		if !w.done[id] {
			t.Errorf("message %s is lost; left: %v", id, w.strings(t, left))
		}
	}
}

const left = `SELECT id || ' is pending' FROM outbox_messages UNION ALL SELECT id || ' is delayed' FROM outbox_delayed UNION ALL SELECT id || ' is parked' FROM outbox_parked`

func (w *watermarkWorld) empty(t *testing.T) bool {
	t.Helper()
	return len(w.strings(t, left)) == 0
}
