package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// DefaultShards is how many shards a Memory has. The tables of the migrations have as many.
const DefaultShards = 64

// ErrTxDone is the error of a transaction that is committed or rolled back.
var ErrTxDone = errors.New("outboxtest: the transaction has ended")

// Memory is an outbox in memory, for tests. It is an outbox.Writer, Queue and Operations, and behaves as the stores of
// real databases do: an enqueued message exists when its transaction is committed, sessions hold shards for a limited
// time, and late completions are refused. Its zero value is an empty outbox. It is safe for concurrent use.
type Memory struct {
	// Shards is how many shards there are. Set it before use.
	//
	// Defaults to DefaultShards.
	Shards int
	// KeepSent is how long messages are kept after they were sent; see Sent. Set it before use.
	//
	// Defaults to 0: they are deleted at once.
	KeepSent time.Duration
	// EarlySequence assigns sequence numbers in Enqueue, as a store does that cannot wait for COMMIT: a message with a
	// lower number may then appear later. Set it before use.
	//
	// Defaults to false: Commit assigns them.
	EarlySequence bool

	mu      sync.Mutex
	down    error // see Stop
	seq     int64
	shards  []shard
	opened  int                    // sessions
	relays  map[*session]time.Time // living sessions, and when their hold expires
	delayed []*row                 // by NotBefore
	parked  map[int64]*row
	sent    []*row // by the time they were sent
	locks   map[string]*lock
	wakers  []*session // in the order of Open
}

var (
	_ outbox.Writer[*Tx] = (*Memory)(nil)
	_ driver.Queue       = (*Memory)(nil)
	_ outbox.Operations  = (*Memory)(nil)
)

// NewMemory returns an empty outbox.
func NewMemory() *Memory { return new(Memory) }

// shard is a shard of the outbox, and the session that holds it.
type shard struct {
	owner *session // nil: no session
	token int64
	rows  []*row // pending, by seq
	holds map[string][]hold
}

// hold holds back the messages of one key from seq on.
type hold struct {
	from  int64
	setAt time.Time
	until time.Time // zero: until Unpark or Discard
	park  bool      // they are parked, not only kept waiting
}

// row is one message.
type row struct {
	driver.Leased
	retryAt  time.Time // of a message without key
	failedAt time.Time // with retryAt
	error    string
	keep     outbox.ParkPolicy // of a parked message
	behind   int64
	waiting  bool
	parkedAt time.Time
	sentAt   time.Time
}

// open prepares the zero value. The caller holds mu.
func (m *Memory) open() {
	if m.shards == nil {
		m.shards = make([]shard, cmp.Or(m.Shards, DefaultShards))
		for i := range m.shards {
			m.shards[i].holds = map[string][]hold{}
		}
		m.relays = map[*session]time.Time{}
		m.parked = map[int64]*row{}
		m.locks = map[string]*lock{}
	}
}

// Tx is a transaction on a Memory. It may be used by one goroutine at a time.
type Tx struct {
	memory *Memory
	done   bool
	rows   []*row
	locks  []string
}

// lock is the lock that LockOrderingKey takes.
type lock struct{ free chan struct{} }

// Begin begins a transaction, which must be ended with Commit or Rollback.
func (m *Memory) Begin() *Tx { return &Tx{memory: m} }

// InTx runs fn in a transaction, and commits it when fn returns nil.
func (m *Memory) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	tx := m.Begin()
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

// Enqueue implements outbox.Writer.
func (m *Memory) Enqueue(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
	if tx.done {
		return ErrTxDone
	}
	if tx.memory != m {
		return errors.New("outboxtest: the transaction is of another outbox")
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	for _, msg := range ready {
		msg.Payload, msg.Headers = bytes.Clone(msg.Payload), maps.Clone(msg.Headers)
		r := &row{Leased: driver.Leased{Stored: outbox.Stored{Message: msg, Shard: driver.Shard(&msg, len(m.shards)), Enqueued: time.Now().Round(0)}}}
		if m.EarlySequence {
			r.Seq = m.next()
		}
		tx.rows = append(tx.rows, r)
	}
	return nil
}

// next takes a sequence number.
func (m *Memory) next() int64 {
	m.seq++
	return m.seq
}

// LockOrderingKey waits until no other transaction holds key, and holds it until tx ends: transactions that call it
// with one key before they read what they are going to write follow each other.
func (m *Memory) LockOrderingKey(ctx context.Context, tx *Tx, key string) error {
	for {
		if tx.done {
			return ErrTxDone
		}
		if slices.Contains(tx.locks, key) {
			return nil
		}
		m.mu.Lock()
		m.open()
		held := m.locks[key]
		if held == nil {
			m.locks[key] = &lock{free: make(chan struct{})}
			tx.locks = append(tx.locks, key)
		}
		m.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held.free:
		case <-ctx.Done():
			return fmt.Errorf("outboxtest: serialize %q: %w", key, context.Cause(ctx))
		}
	}
}

// Commit makes the enqueued messages visible, and notifies the sessions.
func (tx *Tx) Commit() error {
	if tx.done {
		return ErrTxDone
	}
	m := tx.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	now := time.Now()
	for _, r := range tx.rows {
		if r.Seq == 0 {
			r.Seq = m.next()
		}
		if r.NotBefore.After(now) {
			m.delay(r)
		} else {
			m.insert(r)
		}
	}
	tx.end()
	if len(tx.rows) > 0 {
		m.wake(tx.rows)
	}
	return nil
}

// Rollback drops the enqueued messages. After Commit it does nothing and returns ErrTxDone.
func (tx *Tx) Rollback() error {
	if tx.done {
		return ErrTxDone
	}
	tx.memory.mu.Lock()
	defer tx.memory.mu.Unlock()
	tx.end()
	return nil
}

func (tx *Tx) end() {
	tx.done = true
	for _, key := range tx.locks {
		close(tx.memory.locks[key].free)
		delete(tx.memory.locks, key)
	}
}

func (m *Memory) insert(r *row) {
	rows := &m.shards[r.Shard].rows
	at, _ := slices.BinarySearchFunc(*rows, r.Seq, bySeq)
	*rows = slices.Insert(*rows, at, r)
}

func bySeq(r *row, seq int64) int { return cmp.Compare(r.Seq, seq) }

func (m *Memory) delay(r *row) {
	at, _ := slices.BinarySearchFunc(m.delayed, r, func(a, b *row) int {
		return cmp.Or(a.NotBefore.Compare(b.NotBefore), cmp.Compare(a.Seq, b.Seq))
	})
	m.delayed = slices.Insert(m.delayed, at, r)
}

// due appends messages to their key when their NotBefore has passed.
func (m *Memory) due(now time.Time) {
	for len(m.delayed) > 0 && !m.delayed[0].NotBefore.After(now) {
		r := m.delayed[0]
		m.delayed = m.delayed[1:]
		r.Seq = m.next()
		m.insert(r)
	}
}
