package deduptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// Errors that are Retryable.
var (
	ErrDeadlock = errors.New("deduptest: deadlock: this transaction was rolled back")
	ErrDown     = errors.New("deduptest: database is down")
)

// Database is a database in memory, which several stores may share. It keeps claims, and the effects of handlers: named
// values, and counts. It has an outbox, too, whose messages exist exactly if their transactions do. Make one with NewDatabase. It is safe for concurrent use.
type Database struct {
	// Now is the database's clock. Set it before use.
	//
	// Defaults to time.Now.
	Now func() time.Time

	mu    sync.Mutex
	down  bool
	rows  map[dedup.KeyHash]*row
	data  map[string]any
	count map[string]int
	open  map[*Tx]bool
	locks map[any]*lock // by key hash, or by a value's name

	windows     map[string]map[time.Duration]driver.WindowUse
	sources     map[string][]string // by consumer
	forgotten   time.Time
	swept       dedup.KeyHash
	sweeper     string
	leasedUntil time.Time

	outbox *outboxtest.Memory

	server    int // grows when another server takes over
	positions map[driver.PositionID]driver.Position
}

// lock is a row lock that a transaction holds.
type lock struct {
	holder *Tx
	queue  []*waiter
}

type waiter struct {
	tx    *Tx
	woken chan struct{} // closed once tx holds the lock, or has ended
}

// NewDatabase returns an empty Database.
func NewDatabase() *Database {
	return &Database{
		rows: map[dedup.KeyHash]*row{}, data: map[string]any{}, count: map[string]int{}, open: map[*Tx]bool{},
		locks:   map[any]*lock{},
		windows: map[string]map[time.Duration]driver.WindowUse{}, sources: map[string][]string{},
		positions: map[driver.PositionID]driver.Position{}, outbox: outboxtest.NewMemory(),
	}
}

// NewStore returns one more Store on db.
func (db *Database) NewStore() *Store { return &Store{db: db} }

// Begin starts a transaction. The caller must end it with Commit or Rollback.
func (db *Database) Begin(ctx context.Context) (*Tx, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.reachable(ctx); err != nil {
		return nil, err
	}
	tx := &Tx{db: db, rows: map[dedup.KeyHash]*row{}, data: map[string]any{}, count: map[string]int{}}
	db.open[tx] = true
	return tx, nil
}

// Value returns the committed value of name, or nil.
func (db *Database) Value(name string) any {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.data[name]
}

// Values returns the committed values of all names that begin with prefix.
func (db *Database) Values(prefix string) map[string]any {
	db.mu.Lock()
	defer db.mu.Unlock()
	found := map[string]any{}
	for name, v := range db.data {
		if strings.HasPrefix(name, prefix) {
			found[name] = v
		}
	}
	return found
}

// Count returns how many times committed transactions called Add(name).
func (db *Database) Count(name string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.count[name]
}

// Claimed reports whether a committed transaction has claimed key.
func (db *Database) Claimed(key dedup.Key) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.rows[key.Hash()] != nil
}

// Open returns how many transactions are in progress. After all calls have returned it is 0, unless a transaction
// leaks.
func (db *Database) Open() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.open)
}

// Stop shuts the database down: open transactions are lost, and all calls fail with ErrDown until Start.
func (db *Database) Stop() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = true
	db.outbox.Stop(ErrDown)
	for tx := range db.open {
		tx.close(ErrDown)
	}
}

// Start starts the database after Stop, with everything that was committed.
func (db *Database) Start() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = false
	db.outbox.Start()
}

// Age makes everything in the database d older, as if that time had passed only there.
func (db *Database) Age(d time.Duration) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for key, r := range db.rows {
		older := *r
		older.expires = r.expires.Add(-d)
		db.rows[key] = &older
	}
	for _, uses := range db.windows {
		for w, u := range uses {
			uses[w] = driver.WindowUse{Window: w, FirstRun: u.FirstRun.Add(-d), UsedUntil: u.UsedUntil.Add(-d)}
		}
	}
	if !db.forgotten.IsZero() {
		db.forgotten = db.forgotten.Add(-d)
	}
	db.leasedUntil = db.leasedUntil.Add(-d)
}

func (db *Database) reachable(ctx context.Context) error {
	if db.down {
		return ErrDown
	}
	return ctx.Err()
}

func (db *Database) now() time.Time {
	if db.Now == nil {
		return time.Now()
	}
	return db.Now()
}

// use records, outside of any transaction, that consumer claims with window.
func (db *Database) use(consumer string, window time.Duration) {
	uses := db.windows[consumer]
	if uses == nil {
		uses = map[time.Duration]driver.WindowUse{}
		db.windows[consumer] = uses
	}
	now := db.now()
	u, found := uses[window]
	if !found {
		u = driver.WindowUse{Window: window, FirstRun: now}
	}
	if now.Before(u.FirstRun) {
		u.FirstRun = now
	}
	if u.UsedUntil.Sub(now) < driver.UseFor/2 {
		u.UsedUntil = now.Add(driver.UseFor)
	}
	uses[window] = u
}

// lock waits until tx holds id. It is called, and returns, with db.mu locked.
func (db *Database) lock(ctx context.Context, tx *Tx, id any) error {
	l := db.locks[id]
	switch {
	case l == nil:
		db.locks[id] = &lock{holder: tx}
		tx.locks = append(tx.locks, id)
		return nil
	case l.holder == tx:
		return nil
	}
	for held := l; held != nil; held = held.holder.waits {
		if held.holder == tx {
			return fmt.Errorf("%w (on %v)", ErrDeadlock, id)
		}
	}
	w := &waiter{tx: tx, woken: make(chan struct{})}
	l.queue = append(l.queue, w)
	tx.waits = l
	db.mu.Unlock()
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
	db.mu.Lock()
	tx.waits = nil
	if l.holder != tx && !tx.ended {
		l.queue = slices.DeleteFunc(l.queue, func(q *waiter) bool { return q == w })
		return context.Cause(ctx)
	}
	return tx.usable()
}

// unlock gives id to the transaction that has waited longest. Without an order, the same two transactions may deadlock
// forever.
func (db *Database) unlock(tx *Tx, id any) {
	l := db.locks[id]
	if l == nil || l.holder != tx {
		return
	}
	for _, w := range l.queue {
		l.queue = l.queue[1:]
		w.tx.waits = nil
		close(w.woken)
		if !w.tx.ended {
			l.holder = w.tx
			w.tx.locks = append(w.tx.locks, id)
			return
		}
	}
	delete(db.locks, id)
}
