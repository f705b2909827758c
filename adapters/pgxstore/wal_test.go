package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// walTest is an outbox in the write-ahead log with what a test does to it.
type walTest struct {
	*testing.T
	db    *outboxDB
	store *pgxstore.Store
}

func newWALTest(t *testing.T, server func(testing.TB) string, cfg pgxstore.OutboxConfig) *walTest {
	t.Helper()
	db := newOutboxDB(t, server, 6)
	return &walTest{t, db, newWALStore(t, db, cfg)}
}

func (w *walTest) enqueue(msgs ...outbox.Message) error {
	return w.store.InTx(w.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
		return w.store.Enqueue(w.Context(), tx, msgs...)
	})
}

func (w *walTest) mustEnqueue(ids ...string) {
	w.Helper()
	for _, id := range ids {
		w.mustEnqueueAll(walMessage(id))
	}
}

func (w *walTest) mustEnqueueAll(msgs ...outbox.Message) {
	w.Helper()
	if err := again(w.store, func() error { return w.enqueue(msgs...) }); err != nil {
		w.Fatal(err)
	}
}

// walMessage has the part of id before the hyphen for a key.
func walMessage(id string) outbox.Message {
	key, _, _ := strings.Cut(id, "-")
	return outbox.Message{ID: id, Topic: "t", Key: key, Payload: []byte(id)}
}

func (w *walTest) open(ttl time.Duration) outbox.Session {
	w.Helper()
	s, err := w.store.Open(w.Context(), outbox.SessionOptions{Name: w.Name(), TTL: ttl})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { s.Close(context.WithoutCancel(w.Context())) })
	return s
}

// hold renews until the session holds the slot.
func (w *walTest) hold(s outbox.Session) outbox.Session {
	w.Helper()
	w.until("the slot to be taken", func() bool {
		hold, err := s.Renew(w.Context())
		if err != nil {
			w.Logf("Renew: %v", err)
		}
		return err == nil && hold.Shards > 0
	})
	return s
}

func (w *walTest) until(what string, ok func() bool) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(2 * time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			w.Fatalf("waited in vain for %s", what)
		}
	}
}

// tryLease is one Lease. It is not ok while the stream begins again, which passes and may last on a busy machine.
func (w *walTest) tryLease(s outbox.Session, limit int) (got []outbox.Leased, ok bool) {
	w.Helper()
	got, err := s.Lease(w.Context(), outbox.Want{Limit: limit})
	if err != nil {
		if !w.store.Retryable(err) || errors.Is(err, pgxstore.ErrSlotLost) {
			w.Fatalf("Lease: %v", err)
		}
		w.Logf("Lease: %v", err)
	}
	return got, err == nil
}

// lease collects n messages, in the order in which they come.
func (w *walTest) lease(s outbox.Session, n int) (all []outbox.Leased) {
	w.Helper()
	w.until(fmt.Sprintf("%d messages", n), func() bool {
		got, _ := w.tryLease(s, n-len(all))
		all = append(all, got...)
		return len(all) >= n
	})
	return all
}

func (w *walTest) none(s outbox.Session) {
	w.Helper()
	w.until("a Lease without an error", func() bool {
		got, ok := w.tryLease(s, 100)
		if len(got) > 0 {
			w.Fatalf("leased %v; want nothing", idsOf(got))
		}
		return ok
	})
}

func idsOf(msgs []outbox.Leased) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

func (w *walTest) settle(s outbox.Session, v outbox.Verdict, msgs ...outbox.Leased) {
	w.Helper()
	w.settleAll(s, walOutcomes(v, msgs...)...)
}

func (w *walTest) settleAll(s outbox.Session, outcomes ...outbox.Outcome) {
	w.Helper()
	if err := again(w.store, func() error { return s.Settle(w.Context(), outcomes) }); err != nil {
		w.Fatalf("Settle: %v", err)
	}
}

func walOutcomes(v outbox.Verdict, msgs ...outbox.Leased) (all []outbox.Outcome) {
	for _, m := range msgs {
		all = append(all, outbox.Outcome{Leased: m, Verdict: v, Cause: errors.New("refused"), Delay: time.Hour})
	}
	return all
}

func (w *walTest) wantIDs(got []outbox.Leased, want ...string) {
	w.Helper()
	if !slices.Equal(idsOf(got), want) {
		w.Errorf("got %v, want %v", idsOf(got), want)
	}
}

// slot is its name.
func (w *walTest) slot() string {
	w.Helper()
	return w.db.strings(w, `SELECT slot FROM txonce_slots`)[0]
}

// wantSlotError looks at both sides: a transaction that enqueues, and a relay.
func (w *walTest) wantSlotError(reason string, loss bool) {
	w.Helper()
	var of *pgxstore.SlotError
	err := w.enqueue(walMessage("refused-1"))
	if !errors.Is(err, pgxstore.ErrSlotLost) || !errors.As(err, &of) || of.Reason != reason || !w.store.Retryable(err) {
		w.Errorf("Enqueue: %v (retryable: %v), want an ErrSlotLost that says %q", err, w.store.Retryable(err), reason)
	}
	_, err = w.store.Open(w.Context(), outbox.SessionOptions{Name: "another", TTL: time.Minute})
	if !errors.Is(err, pgxstore.ErrSlotLost) || !errors.As(err, &of) || of.Reason != reason || loss != (of.From != "" && of.To != "" && of.LastSeq > 0) {
		w.Errorf("Open: %v, want an ErrSlotLost that says %q, and what may be lost: %v", err, reason, loss)
	}
}

// repair goes on after a loss, and shows that messages are published again.
func (w *walTest) repair(loss bool) {
	w.Helper()
	lost, err := w.store.RepairOutboxSlot(w.Context())
	if err != nil || (lost != nil) != loss {
		w.Fatalf("RepairOutboxSlot: %v, %v; want a loss: %v", lost, err, loss)
	}
	w.mustEnqueue("after-1")
	s := w.hold(w.open(time.Hour))
	w.wantIDs(w.lease(s, 1), "after-1")
}

func TestOutboxWALRefusesToEmitWithoutASlot(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 6)
		store := newStore(t, pgxstore.Config{Pool: db.pool, Outbox: pgxstore.OutboxConfig{Mode: pgxstore.OutboxWAL}})
		w := &walTest{t, db, store}
		w.wantSlotError("none", false)
		if _, err := store.RepairOutboxSlot(t.Context()); !errors.Is(err, pgxstore.ErrSlotLost) {
			t.Errorf("RepairOutboxSlot without a slot: %v", err)
		}
	})
}

func TestOutboxWALSlotIsGone(t *testing.T) {
	for name, harm := range map[string]struct {
		reason string
		do     func(w *walTest)
	}{
		"dropped": {"missing", func(w *walTest) { w.db.exec(w, `SELECT pg_drop_replication_slot($1)`, w.slot()) }},
		"replaced": {"foreign", func(w *walTest) {
			name := w.slot()
			w.db.exec(w, `SELECT pg_drop_replication_slot($1)`, name)
			w.db.exec(w, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, name)
		}},
		"advanced": {"foreign", func(w *walTest) {
			w.db.exec(w, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, w.slot())
		}},
		"promoted": {"promoted", func(w *walTest) { w.db.exec(w, `UPDATE txonce_slots SET timeline = '000000FF'`) }},
		"restored": {"copied", func(w *walTest) { w.db.exec(w, `UPDATE txonce_slots SET system = system + 1, started = '-infinity'`) }},
	} {
		t.Run(name, func(t *testing.T) {
			servers(t, func(t *testing.T, server func(testing.TB) string) {
				w := newWALTest(t, server, pgxstore.OutboxConfig{})
				s := w.hold(w.open(time.Hour))
				w.mustEnqueue("a-1")
				w.settle(s, outbox.Sent, w.lease(s, 1)...)
				if err := s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.mustEnqueue("a-2")
				w.until("the slot to be free", func() bool {
					return len(w.db.strings(w, `SELECT slot_name FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.slot())) == 0
				})
				old := w.slot()
				harm.do(w)
				w.wantSlotError(harm.reason, harm.reason != "copied")
				if harm.reason == "promoted" { // the slot came along: nothing is lost
					if lost, err := w.store.RepairOutboxSlot(t.Context()); lost != nil || err != nil {
						t.Fatalf("RepairOutboxSlot: %v, %v", lost, err)
					}
					s := w.hold(w.open(time.Hour))
					w.wantIDs(w.lease(s, 1), "a-2")
					return
				}
				if harm.reason == "copied" {
					// In this test the original is the same database: its slot keeps its name, and is not touched.
					_, err := w.store.RepairOutboxSlot(t.Context())
					if err == nil || len(w.db.strings(w, `SELECT slot_name FROM pg_replication_slots WHERE slot_name = $1`, old)) != 1 {
						t.Errorf("a copy took the original's slot: %v", err)
					}
					return
				}
				w.repair(true)
			})
		})
	}
}

// A slot that is dropped while messages are emitted and published: whatever was committed is published or lies in the range that is
// reported, and the relay does not go on as if nothing had happened.
func TestOutboxWALSlotDroppedUnderLoad(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		refused := make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				if err := again(w.store, func() error { return w.enqueue(walMessage(fmt.Sprintf("k%d-%d", i%7, i))) }); err != nil {
					refused <- err
					return
				}
			}
		}()
		for range 20 {
			w.settle(s, outbox.Sent, w.lease(s, 1)...)
		}
		w.db.dropSlot(w)
		select {
		case err := <-refused:
			if !errors.Is(err, pgxstore.ErrSlotLost) {
				t.Errorf("Enqueue: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("messages are emitted for ever into a slot that does not exist")
		}
		_, err := s.Renew(t.Context())
		var of *pgxstore.SlotError
		if !errors.As(err, &of) || of.Reason != "missing" || of.From == "" {
			t.Errorf("Renew: %v, want that the slot is missing and what may be lost", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		w.repair(true)
	})
}

// A frozen relay keeps its connection. Its successor waits for the end of the hold, not for the connection's.
func TestOutboxWALTakesOverFromAFrozenRelay(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		frozen := w.hold(w.open(time.Hour))
		w.mustEnqueue("a-1", "b-1")
		leased := w.lease(frozen, 2)
		token := w.db.strings(t, `SELECT token::text FROM txonce_slots`)
		next := w.open(time.Hour)
		if hold, err := next.Renew(t.Context()); err != nil || hold.Shards != 0 {
			t.Fatalf("beside a living relay the second holds %+v, %v", hold, err)
		}
		if now := w.db.strings(t, `SELECT token::text FROM txonce_slots`); !slices.Equal(now, token) {
			t.Errorf("the slot was taken from a living relay: token %v, was %v", now, token)
		}
		w.db.exec(t, `UPDATE txonce_relays SET until = clock_timestamp()`) // the hour is over
		w.hold(next)
		err := frozen.Settle(t.Context(), walOutcomes(outbox.Sent, leased...))
		if !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("the frozen relay settles: %v", err)
		}
		again := w.lease(next, 2)
		if len(again) != 2 {
			t.Errorf("the successor leases %v", idsOf(again))
		}
		w.settle(next, outbox.Sent, again...)
		if _, err := frozen.Renew(t.Context()); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("the frozen relay renews: %v", err)
		}
	})
}

// After a crash only what was leased comes again, though the slot stands before all of it.
func TestOutboxWALCrashRepeatsWhatWasLeased(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		w.mustEnqueue("a-1", "b-1", "c-1", "d-1")
		byID := map[string]outbox.Leased{}
		for _, m := range w.lease(s, 4) {
			byID[m.ID] = m
		}
		w.settle(s, outbox.Sent, byID["b-1"], byID["d-1"]) // a-1 stands before them
		w.settle(s, outbox.Deferred, byID["c-1"])          // spills
		w.db.want(t, "c-1")
		if err := s.Close(t.Context()); err != nil { // as good as a crash: a-1 is not settled
			t.Fatal(err)
		}
		next := w.hold(w.open(time.Hour))
		w.wantIDs(w.lease(next, 1), "a-1")
		w.none(next)
		w.db.want(t, "c-1") // once
	})
}

// What came behind a message that spilled spills too, and is published in its place.
func TestOutboxWALSpillsFollowers(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		w.mustEnqueue("a-1", "b-1")
		leased := w.lease(s, 2)
		for i, m := range leased {
			if m.ID == "a-1" {
				w.settle(s, outbox.Deferred, m)
			} else {
				w.settle(s, outbox.Sent, leased[i])
			}
		}
		w.mustEnqueue("a-2", "b-2", "a-3")
		w.wantIDs(w.lease(s, 1), "b-2")
		w.until("the followers in the table", func() bool {
			w.none(s)
			return slices.Equal(w.db.ids(t), []string{"a-1", "a-2", "a-3"})
		})
		w.db.exec(t, `UPDATE outbox_held SET until = now()`)
		var got []string
		w.until("the key to go on", func() bool {
			msgs, _ := w.tryLease(s, 10)
			got = append(got, idsOf(msgs)...)
			if len(msgs) > 0 {
				w.settle(s, outbox.Sent, msgs...)
			}
			return len(got) == 3
		})
		if want := []string{"a-1", "a-2", "a-3"}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		w.mustEnqueue("a-4")
		w.wantIDs(w.lease(s, 1), "a-4")
		w.db.want(t) // it did not go through the table
	})
}

// The slot stays before what is not published, whatever else happens on the server.
func TestOutboxWALKeepaliveDoesNotConfirm(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		w.mustEnqueue("a-1")
		leased := w.lease(s, 1)
		at := w.db.strings(t, `SELECT pg_current_wal_lsn()::text`)[0]
		w.db.exec(t, `CREATE TABLE traffic AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)`)
		passed := func() bool {
			return len(w.db.strings(t, `SELECT slot_name FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::pg_lsn`, w.slot(), at)) == 1
		}
		for end := time.After(3 * time.Second); ; {
			select {
			case <-time.After(100 * time.Millisecond):
				if passed() {
					t.Fatal("the slot was told that a message is done with that is only leased")
				}
				continue
			case <-end:
			}
			break
		}
		st, err := w.store.Stats(t.Context())
		if err != nil || st.SlotLag < 5_000_000 {
			t.Errorf("the slot is %d bytes behind, %v; want more than 5 MB", st.SlotLag, err)
		}
		w.settle(s, outbox.Sent, leased...)
		w.until("the slot to be told", passed)
		w.until("the slot to be less than 2 MB behind", func() bool { // others write too
			st, err := w.store.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return st.SlotLag < 2<<20
		})
	})
}

func TestOutboxWALTwoOutboxesInOneDatabase(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		one, two := newWALTest(t, server, pgxstore.OutboxConfig{}), newWALTest(t, server, pgxstore.OutboxConfig{})
		a, b := one.hold(one.open(time.Hour)), two.hold(two.open(time.Hour))
		one.mustEnqueue("a-1")
		two.mustEnqueue("b-1")
		one.wantIDs(one.lease(a, 1), "a-1")
		one.none(a)
		two.wantIDs(two.lease(b, 1), "b-1")
		two.none(b)
	})
}

// A transaction that does not fit into memory is published as it comes.
func TestOutboxWALLargeTransaction(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		const n, most = 50_000, 2_000
		w := newWALTest(t, server, pgxstore.OutboxConfig{WALMessages: most})
		s := w.hold(w.open(time.Hour))
		msgs := make([]outbox.Message, n)
		for i := range msgs {
			msgs[i] = walMessage(fmt.Sprintf("k%d-%06d", i%100, i))
		}
		w.mustEnqueueAll(msgs...)
		last := map[string]string{}
		end := time.NewTimer(2 * time.Minute) // without a message
		defer end.Stop()
		for count := 0; count < n; {
			got, _ := w.tryLease(s, 1000)
			for _, m := range got {
				if m.ID <= last[m.Key] {
					t.Fatalf("%s after %s", m.ID, last[m.Key])
				}
				last[m.Key] = m.ID
			}
			if held := pgxstore.WALOpen(s); held > most+1 {
				t.Fatalf("%d messages are in memory", held)
			}
			if len(got) > 0 {
				w.settle(s, outbox.Sent, got...)
				end.Reset(2 * time.Minute)
			}
			count += len(got)
			select {
			case <-end.C:
				t.Fatalf("%d of %d messages came", count, n)
			default:
			}
		}
		w.none(s)
	})
}

// What is settled while the stream begins again does not come again: it must not begin at a position from before.
func TestOutboxWALSettlesWhileTheStreamBegins(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		direct := w.db.pool.Config().ConnConfig
		dialing, dial := make(chan struct{}), make(chan struct{})
		var dials atomic.Int32
		direct.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) == 2 { // the first one is the stream that is to break
				close(dialing)
				<-dial
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		w.store = newStore(t, pgxstore.Config{Pool: w.db.pool, Direct: direct, Outbox: pgxstore.OutboxConfig{Mode: pgxstore.OutboxWAL}})
		s := w.hold(w.open(time.Hour))
		w.mustEnqueue("a-1", "b-1")
		leased := w.lease(s, 2)
		w.db.exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.slot())
		select {
		case <-dialing:
		case <-time.After(2 * time.Minute):
			t.Fatal("the stream does not begin again")
		}
		w.settle(s, outbox.Sent, leased...)
		if st, err := (counted{w.store, w.db}).Stats(t.Context()); st.Pending != 0 || err != nil {
			t.Errorf("%d are pending, %v; want none, though the slot has not heard of it", st.Pending, err)
		}
		close(dial)
		w.mustEnqueue("c-1")
		w.wantIDs(w.lease(s, 1), "c-1")
		w.none(s)
	})
}

// A connection that breaks costs nothing: the stream begins again behind what is confirmed, and what is in memory stays.
func TestOutboxWALStreamBreaks(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		w := newWALTest(t, server, pgxstore.OutboxConfig{})
		s := w.hold(w.open(time.Hour))
		const n = 300
		committed := make(chan error, 1)
		go func() {
			defer close(committed)
			for i := range n {
				if err := again(w.store, func() error { return w.enqueue(walMessage(fmt.Sprintf("k%d-%03d", i%5, i))) }); err != nil {
					committed <- err
					return
				}
			}
		}()
		seen := map[string]int{}
		last := map[string]string{}
		kept := w.lease(s, 1)                 // stays leased, so that everything is sent again each time
		end := time.NewTimer(2 * time.Minute) // without a message
		defer end.Stop()
		for cuts := 0; len(seen) < n-1; {
			select {
			case err := <-committed:
				if err != nil {
					t.Fatal(err)
				}
			case <-end.C:
				t.Fatalf("%d of %d messages came", len(seen), n-1)
			default:
			}
			got, _ := w.tryLease(s, 10)
			for _, m := range got {
				if seen[m.ID]++; m.ID <= last[m.Key] || seen[m.ID] > 1 {
					t.Fatalf("%s (for the time %d) after %s", m.ID, seen[m.ID], last[m.Key])
				}
				last[m.Key] = m.ID
			}
			if len(got) > 0 {
				w.settle(s, outbox.Sent, got...)
				end.Reset(2 * time.Minute)
			}
			if len(seen) > 40*(cuts+1) {
				cuts++
				w.db.exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.slot())
			}
			if len(seen) > 100 && len(kept) > 0 {
				w.settle(s, outbox.Sent, kept...)
				kept = nil
			}
			if _, err := s.Renew(t.Context()); err != nil {
				t.Logf("Renew: %v", err)
			}
		}
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		w.none(s)
	})
}
