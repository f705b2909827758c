package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Whatever the settings of the driver and the session are, payloads keep their bytes and times come from the server's
// clock.
func TestOutboxMySQLWithAnyDSN(t *testing.T) {
	for _, params := range []string{
		"interpolateParams=true", "parseTime=true&loc=Asia%2FTokyo", "time_zone=%27%2B05%3A00%27",
		"clientFoundRows=true",
		isolationParameter(t) + "=%27SERIALIZABLE%27",
	} {
		t.Run(params, func(t *testing.T) {
			d := openMySQL(t)
			wholeLife(t, d.open(t, testdb.WithMySQL(t, d.dsn, params), deduptest.Options{}))
		})
	}
}

// Lease reads large payloads separately, and only those of messages that it returns.
func TestOutboxMySQLLargeMessages(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, testdb.WithMySQL(t, d.dsn, "interpolateParams=true"), deduptest.Options{})
	sizes := []int{10, 4 << 10, 5 << 10, 100 << 10, 3 << 20, 7}
	var msgs []outbox.Message
	for i, size := range sizes {
		msgs = append(msgs, outbox.Message{
			ID: fmt.Sprint(i), Topic: "t", OrderingKey: "k", Payload: bytes.Repeat([]byte{byte(i), '\''}, size/2),
			Headers: map[string]string{"n": fmt.Sprint(i)},
		})
	}
	enqueue(t, n, msgs...)
	s := open(t, n, time.Minute)
	renew(t, s)
	var got []driver.Leased
	for len(got) < len(msgs) {
		some, err := s.tryLease(t.Context(), driver.Want{Limit: 100, Bytes: 64 << 10})
		if err != nil || len(some) == 0 {
			t.Fatalf("%d of %d messages: %v", len(got), len(msgs), err)
		}
		weight := 0
		for _, m := range some {
			weight += len(m.Payload)
		}
		if weight > 64<<10 && len(some) > 1 {
			t.Errorf("%d messages of %d bytes at once", len(some), weight)
		}
		settle(t, s, outcomes(driver.Sent, some...))
		got = append(got, some...)
	}
	for i, m := range got {
		if m.ID != msgs[i].ID || m.OrderingKey != "k" || !bytes.Equal(m.Payload, msgs[i].Payload) ||
			m.Headers["n"] != m.ID {
			t.Errorf("message %d came as %s, with %d bytes for %d", i, m.ID, len(m.Payload), len(msgs[i].Payload))
		}
	}
}

// Lease reads few messages with one query and many in fair parts. Both ways return all messages, in the order of their
// keys.
func TestOutboxMySQLFewAndMany(t *testing.T) {
	const keys = 97
	for _, count := range []int{1, 499, 500, 501, 1201} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			n := openMySQL(t)
			q := n.open(t, n.dsn, deduptest.Options{})
			enqueue(t, q, messages("", count, keys)...)
			s := open(t, q, time.Minute)
			renew(t, s)
			last, seen := map[string]int64{}, map[string]bool{}
			for len(seen) < count {
				msgs := lease(t, s)
				if len(msgs) == 0 {
					t.Fatalf("%d of %d messages", len(seen), count)
				}
				for _, m := range msgs {
					if seen[m.ID] || m.Seq < last[m.OrderingKey] {
						t.Errorf("message %s of %s after %d", m.ID, m.OrderingKey, last[m.OrderingKey])
					}
					seen[m.ID], last[m.OrderingKey] = true, m.Seq
				}
				settle(t, s, outcomes(driver.Sent, msgs...))
			}
		})
	}
	t.Run("fair", func(t *testing.T) {
		n := openMySQL(t)
		q := n.open(t, n.dsn, deduptest.Options{})
		enqueue(t, q, messages("", 3000, keys)...)
		s := open(t, q, time.Minute)
		renew(t, s)
		for _, limit := range []int{128, 1000} {
			msgs, err := s.tryLease(t.Context(), driver.Want{Limit: limit})
			if err != nil || len(msgs) != limit {
				t.Fatalf("%d messages of %d, %v", len(msgs), limit, err)
			}
			shards := map[int]bool{}
			for _, m := range msgs {
				shards[m.Shard] = true
			}
			if len(shards) < 40 { // the keys are in about 50 shards
				t.Errorf("%d messages of %d shards", limit, len(shards))
			}
			settle(t, s, outcomes(driver.Returned, msgs...))
		}
	})
}

// A message that is too large for the server is a bad message, not an outage.
func TestOutboxMySQLMessageLargerThanAPacket(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	var packet int // 16 MiB on MariaDB, 64 MiB on MySQL
	if err := d.db.QueryRowContext(t.Context(), `SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		t.Fatal(err)
	}
	err := n.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
		return n.Enqueue(t.Context(), tx, outbox.Message{ID: "1", Topic: "t", Payload: make([]byte, packet)})
	})
	if !errors.Is(err, outbox.ErrBadMessage) || n.Retryable(err) || !strings.Contains(err.Error(),
		"max_allowed_packet") {
		t.Errorf("%v, retryable %v", err, n.Retryable(err))
	}
}

// LockOrderingKey locks a row: a second transaction with the same slot waits for the first one, and a transaction with
// another slot does not wait.
func TestOutboxMySQLSerialize(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	first, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback()
	if err := n.LockOrderingKey(t.Context(), first, "k"); err != nil {
		t.Fatal(err)
	}
	if err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error { return n.LockOrderingKey(t.Context(), tx, "another") }); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		second <- inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error { return n.LockOrderingKey(t.Context(), tx, "k") })
	}()
	select {
	case err := <-second:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `DELETE FROM outbox_locks`)
	err = inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error { return n.LockOrderingKey(t.Context(), tx, "k") })
	if !errors.Is(err, dedup.ErrSchema) {
		t.Errorf("without rows to lock: %v", err)
	}
}

// anyDeadlock hides a deadlock from again, so that again does not repeat it: the Store itself must repeat after
// deadlocks.
func anyDeadlock(err error) error {
	if e, known := errors.AsType[*mysql.MySQLError](err); known && e.Number == 1213 {
		return errors.New(err.Error()) // as text, so that it is not Retryable
	}
	return err
}

// Writers, relays that take shards from each other, Unpark and Maintain run at the same time. No caller gets a
// deadlock, and no message is lost.
func TestOutboxMySQLCollisions(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	const writers, each = 4, 100
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range each {
				err := n.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error {
					return n.Enqueue(ctx, tx, outbox.Message{
						ID: fmt.Sprintf("%d-%d", w, i), Topic: "t",
						OrderingKey: fmt.Sprint(i % 7),
					})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	sent := make(map[string]int)
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(sent) == writers*each
	}
	for range 3 {
		wait.Go(func() {
			s, err := n.Open(ctx, driver.SessionOptions{Name: "relay", TTL: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close(ctx)
			for turn := 0; !done() && ctx.Err() == nil; turn++ {
				var msgs []driver.Leased
				if err := again(n, func() error { _, err := s.Renew(ctx); return anyDeadlock(err) }); err != nil {
					t.Error(err)
				}
				err := again(n, func() (err error) {
					msgs, err = s.Lease(ctx, driver.Want{Limit: 50})
					return anyDeadlock(err)
				})
				if err != nil {
					t.Error(err)
				}
				var out []driver.Outcome
				for i, m := range msgs {
					v := driver.Sent
					if i == 0 && turn%3 == 0 {
						v = driver.Parked
					} else if i > 0 && out[0].Verdict == driver.Parked && m.OrderingKey == out[0].OrderingKey {
						v = driver.Returned
					}
					out = append(out, driver.Outcome{Leased: m, Verdict: v})
				}
				if err := again(n, func() error { return anyDeadlock(s.Settle(ctx, out)) }); err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				for _, o := range out {
					if o.Verdict == driver.Sent {
						sent[o.ID]++
					}
				}
				mu.Unlock()
				if err := again(n, func() error { return anyDeadlock(s.(driver.Maintainer).Maintain(ctx)) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Go(func() {
		for !done() && ctx.Err() == nil {
			err := again(n, func() error {
				parked, err := n.Outbox().Parked(ctx, outbox.ParkedFilter{})
				var seqs []int64
				for _, m := range parked {
					seqs = append(seqs, m.Seq)
				}
				if err == nil {
					_, err = n.Outbox().Unpark(ctx, seqs...)
				}
				return anyDeadlock(err)
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	wait.Wait()
	if !done() {
		st, err := n.Outbox().Stats(t.Context())
		t.Errorf("%d of %d sent; %+v, %v", len(sent), writers*each, st, err)
	}
	for id, times := range sent {
		if times != 1 {
			t.Errorf("%s was confirmed %d times", id, times)
		}
	}
}

// After a failover to a replica that lacked commits, another message may have the seq of a leased one. It is not
// settled in its place.
func TestOutboxMySQLSettlesNoOtherMessage(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	s := holdsAll(t, n)
	for _, verdict := range []driver.Verdict{driver.Sent, driver.Deferred, driver.Parked} {
		enqueue(t, n, outbox.Message{ID: "old", Topic: "t", OrderingKey: "k"})
		leased := lease(t, s)
		exec(t, d.db, `UPDATE outbox_messages SET id = 'new'`)
		all := outcomes(verdict, leased...)
		all[0].Delay = time.Hour
		settle(t, s, all)
		again := lease(t, s)
		if len(again) != 1 || again[0].ID != "new" || again[0].Attempts != 0 {
			t.Fatalf("after verdict %v of another message: leased %+v, want the new message", verdict, again)
		}
		settle(t, s, outcomes(driver.Sent, again...))
	}
}

// While a session moves due messages, another one moves none and does not wait: later messages could be published
// first.
func TestOutboxMySQLMovesWhatIsDueInOrder(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	s := holdsAll(t, n)
	for i, id := range []string{"1", "2", "3"} {
		enqueue(t, n, outbox.Message{ID: id, Topic: "t", OrderingKey: "k", NotBefore: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
	}
	exec(t, d.db, `UPDATE outbox_delayed SET not_before = not_before - 7200000000`)
	other, err := d.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.Exec(`SELECT slot FROM outbox_locks WHERE slot = ? FOR UPDATE`, dialect.MoveTurn); err != nil {
		t.Fatal(err)
	}
	enqueue(t, n, outbox.Message{ID: "now", Topic: "t"})
	leased := lease(t, s)
	if len(leased) != 1 || leased[0].ID != "now" {
		t.Errorf("leased %+v while another session moves what is due, want what was not delayed", leased)
	}
	settle(t, s, outcomes(driver.Sent, leased...))
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range lease(t, s) {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []string{"1", "2", "3"}) {
		t.Errorf("leased %v, want 1, 2, 3", ids)
	}
}

// The row of the lock for moving delayed messages is missing. Lease fails: otherwise no delayed message would ever
// move.
func TestOutboxMySQLMovesNothingWithoutItsLock(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	s := holdsAll(t, n)
	exec(t, d.db, `DELETE FROM outbox_locks WHERE slot = ?`, dialect.MoveTurn)
	enqueue(t, n, outbox.Message{ID: "due", Topic: "t", NotBefore: time.Now().Add(time.Hour)})
	exec(t, d.db, `UPDATE outbox_delayed SET not_before = not_before - 7200000000`)
	if _, err := s.Lease(t.Context(), driver.Want{Limit: 10}); !errors.Is(err, dedup.ErrSchema) {
		t.Errorf("Lease: %v, want ErrSchema", err)
	}
}

// A transaction that has enqueued a delayed message stays open. Messages that are due are leased without waiting for
// it.
func TestOutboxMySQLLeaseBesideAnOpenTransaction(t *testing.T) {
	d := openMySQL(t)
	n := d.open(t, d.dsn, deduptest.Options{})
	s := holdsAll(t, n)
	open, err := d.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback()
	if err := n.Enqueue(t.Context(), open, outbox.Message{ID: "open", Topic: "t", NotBefore: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, n, outbox.Message{ID: "now", Topic: "t"},
		outbox.Message{ID: "due", Topic: "t", NotBefore: time.Now().Add(100 * time.Millisecond)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ids := []string{}; !slices.Equal(ids, []string{"due", "now"}); slices.Sort(ids) {
		msgs, err := s.tryLease(ctx, driver.Want{Limit: 10})
		if err != nil {
			t.Fatalf("after %v: %v", ids, err)
		}
		for _, m := range msgs {
			ids = append(ids, m.ID)
		}
	}
}
