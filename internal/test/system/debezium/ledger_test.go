package debezium_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
)

// fate is the outcome of a message's transaction.
type fate int

const (
	rolledBack fate = iota
	commits
	unknown // the server was killed before it answered COMMIT
)

type entry struct {
	outbox.Message
	fate fate
	n    int // number among the messages of its key, in the order of enqueueing, including rolled back ones
}

// ledger records what was enqueued on a capture.
type ledger struct {
	*capture
	mu      sync.Mutex
	entries map[string]*entry // by ID
	random  *rand.Rand
}

func newLedger(c *capture) *ledger {
	return &ledger{capture: c, entries: map[string]*entry{}, random: rand.New(rand.NewPCG(1, 2))}
}

// message makes a message and its number. The caller must hold the key's ordering lock.
func (l *ledger) message(key string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &entry{n: len(l.entries)}
	m.ID, m.Topic, m.OrderingKey = fmt.Sprint("m", m.n), "orders", key
	if l.random.IntN(4) == 0 {
		m.Topic = "bills"
	}
	if n := l.random.IntN(5); n > 0 {
		m.Payload = make([]byte, 1<<(2*n))
		for i := range m.Payload {
			m.Payload[i] = byte(l.random.Uint32())
		}
	}
	if l.random.IntN(3) > 0 {
		m.Headers = map[string]string{
			"eventType": "Charged", "tenant": "ächme \"5\"",
			"raw": string([]byte{0xff, 0, byte(m.n)}),
		}
	}
	l.entries[m.ID] = m
	return m
}

var errRolledBack = errors.New("rolled back on purpose")

// transact enqueues some messages of a key in one transaction, which ends as wanted unless the server fails.
// Transactions with one key run one after another. Every second transaction uses InTx, which writes messages with its
// COMMIT.
func (l *ledger) transact(ctx context.Context, key string, want fate) {
	var in []*entry
	enqueue := func(tx pgx.Tx) error {
		if key != "" {
			if err := l.store.LockOrderingKey(ctx, tx, key); err != nil {
				return err
			}
		}
		in = nil
		var msgs []outbox.Message
		for range 1 + len(key)%3 {
			m := l.message(key)
			in, msgs = append(in, m), append(msgs, m.Message)
		}
		if err := l.store.Enqueue(ctx, tx, msgs...); err != nil {
			return err
		}
		if len(msgs[0].Payload) == 4 { // with a savepoint that is rolled back
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				if err := l.store.Enqueue(ctx, tx, l.message(key).Message); err != nil {
					return err
				}
				return errRolledBack
			})
			if !errors.Is(err, errRolledBack) {
				return err
			}
		}
		if want == rolledBack {
			return errRolledBack
		}
		return nil
	}
	var err error
	committing := false
	if l.message("").n%2 == 0 { // this message is never enqueued
		err = l.store.InTx(ctx, nil, func(tx pgx.Tx, _ []dedup.Claim) error {
			err := enqueue(tx)
			committing = err == nil
			return err
		})
	} else {
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			err := enqueue(tx)
			committing = err == nil
			return err
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range in {
		switch {
		case err == nil:
			m.fate = commits
		case committing:
			m.fate = unknown
		}
	}
}

// write runs several concurrent writers until stop is called.
func (l *ledger) write(t *testing.T) (stop func()) {
	t.Helper()
	var stops []func()
	for w := range 3 {
		random := rand.New(rand.NewPCG(3, uint64(w)))
		stops = append(stops, repeat(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			want := commits
			if random.IntN(4) == 0 {
				want = rolledBack
			}
			key := []string{"", "k0", "k\xff\x00", "key 2", "k3"}[random.IntN(5)]
			l.transact(ctx, key, want)
		}))
	}
	return sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
	})
}

// committed returns the number of committed messages.
func (l *ledger) committed() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.entries {
		if m.fate == commits {
			n++
		}
	}
	return n
}

// header returns one of a record's headers, and whether it exists.
func (r *record) header(name string) (value []byte, ok bool) {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value, true
		}
	}
	return nil, false
}

// missing returns the committed messages that have not arrived.
func (l *ledger) missing() (ids []string) {
	arrived := map[string]bool{}
	l.capture.mu.Lock()
	for i := range l.records {
		id, _ := l.records[i].header("id")
		arrived[string(id)] = true
	}
	l.capture.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, m := range l.entries {
		if m.fate == commits && !arrived[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// audit compares the records that have arrived with the committed messages.
func (l *ledger) audit(t *testing.T) {
	t.Helper()
	seen, last := map[string]int{}, map[string]*entry{}
	sequence := map[string]int{} // number of the last message of each key
	for i := range l.records {
		r := &l.records[i]
		header, _ := r.header("id")
		id := string(header)
		m := l.entries[id]
		if m == nil || m.fate == rolledBack {
			t.Errorf("message %q arrives, which was not committed", id)
			continue
		}
		if err := m.compare(r); err != nil {
			t.Errorf("message %q: %v", id, err)
		}
		if seen[id]++; seen[id] > 1 || m.OrderingKey == "" {
			continue
		}
		if before := last[m.OrderingKey]; before != nil && before.n > m.n {
			t.Errorf("key %q: message %d arrives after %d", m.OrderingKey, m.n, before.n)
		}
		last[m.OrderingKey] = m
		text, _ := r.header(outbox.HeaderSequence)
		seq, err := strconv.Atoi(string(text))
		if err != nil || seq <= sequence[m.OrderingKey] {
			t.Errorf("key %q: sequence %q after %d (%v)", m.OrderingKey, text, sequence[m.OrderingKey], err)
		}
		sequence[m.OrderingKey] = seq
	}
	if missing := l.missing(); len(missing) > 0 {
		slices.Sort(missing)
		t.Errorf("%d messages are missing: %v", len(missing), missing)
	}
	fates := map[fate]int{}
	for _, m := range l.entries {
		fates[m.fate]++
	}
	t.Logf("%d messages committed, %d rolled back, %d whose transaction has no answer; %d records, of which %d repeat a message; %d heartbeats",
		fates[commits], fates[rolledBack], fates[unknown], len(l.records), len(l.records)-len(seen), l.beats)
	if fates[rolledBack] == 0 || l.beats == 0 {
		t.Error("the test does not test what it should")
	}
}

// compare reports how a record differs from the message.
func (m *entry) compare(r *record) error {
	switch id, _ := r.header(outbox.HeaderID); {
	case r.Topic != m.Topic:
		return fmt.Errorf("topic %q, want %q", r.Topic, m.Topic)
	case string(r.Key) != m.OrderingKey || (r.Key == nil) != (m.OrderingKey == ""):
		return fmt.Errorf("key %q, want %q", r.Key, m.OrderingKey)
	case r.Value == nil || !bytes.Equal(r.Value, m.Payload):
		return fmt.Errorf("value %q, want %q", r.Value, m.Payload)
	case string(id) != m.ID:
		return fmt.Errorf("header %s is %q", outbox.HeaderID, id)
	}
	at, _ := r.header(outbox.HeaderEnqueued)
	if _, err := time.Parse(time.RFC3339Nano, string(at)); err != nil {
		return err
	}
	encoded, ok := r.header("headers")
	if !ok || (encoded == nil) != (len(m.Headers) == 0) {
		return fmt.Errorf("header headers is %q (%v), want what says %q", encoded, ok, m.Headers)
	}
	if encoded == nil {
		return nil
	}
	headers, err := driver.DecodeHeaders(encoded)
	if err != nil || !maps.Equal(headers, m.Headers) {
		return fmt.Errorf("headers %q, want %q (%w)", headers, m.Headers, err)
	}
	return nil
}
