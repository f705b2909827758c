//go:build unix

package pgxstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

// Where a slot is free, and not the second one that its creation needs for a moment, nothing is left behind.
func TestOutboxWALOneFreeSlot(t *testing.T) {
	if reason := noPrograms(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	db := newOutboxDBAt(t, ownPostgres(t, "max_replication_slots=1"), 4)
	store := newStore(t, pgxstore.Config{Pool: db.pool, Outbox: pgxstore.OutboxConfig{Mode: pgxstore.OutboxWAL}})
	if err := store.CreateOutboxSlot(t.Context()); err == nil || !strings.Contains(err.Error(), "two free ones of max_replication_slots") {
		t.Errorf("CreateOutboxSlot = %v; want it to name what is missing", err)
	}
	if left := db.strings(t, `SELECT slot_name FROM pg_replication_slots`); len(left) > 0 {
		t.Errorf("slots %v are left", left)
	}
}

// A slot that falls too far behind is lost: Enqueue refuses from before that moment on, and a relay says what may be lost.
func TestOutboxWALSlotIsOverrun(t *testing.T) {
	if reason := noPrograms(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	dsn := ownPostgres(t, "max_slot_wal_keep_size=1MB", "max_wal_size=1GB", "checkpoint_timeout=1h") // no checkpoint but the test's
	w := newWALTest(t, func(testing.TB) string { return dsn }, pgxstore.OutboxConfig{})
	s := w.hold(w.open(time.Hour))
	w.mustEnqueue("a-1")
	w.settle(s, outbox.Sent, w.lease(s, 1)...)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mustEnqueue("a-2")
	status := func(w *walTest) string {
		return w.db.strings(w, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, w.slot())[0]
	}
	w.db.exec(t, `SELECT pg_logical_emit_message(false, 'traffic', repeat('x', 1000000)) FROM generate_series(1, 20)`)
	w.db.exec(t, `SELECT pg_switch_wal()`)
	if err := w.enqueue(walMessage("b-1")); status(w) != "unreserved" || !errors.Is(err, pgxstore.ErrSlotLost) {
		t.Errorf("the slot is %s, and Enqueue says %v", status(w), err)
	}
	w.until("the slot to be lost", func() bool {
		w.db.exec(t, `CHECKPOINT`)
		return status(w) == "lost"
	})
	w.wantSlotError("lost", true)
	w.repair(true)
}
