package deduptest

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

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/names"
)

// DefaultWait is the default of Store.Wait.
const DefaultWait = time.Second

// Store is a dedup.Store in memory, for tests. It behaves like the stores of real databases: its transactions run
// concurrently, wait for each other's rows, deadlock, and roll back when their handler fails, panics or is cancelled.
// It also implements the optional interfaces of dedup. It is safe for concurrent use.
type Store struct {
	// Wait limits how long one call of Claim or InTx waits for held keys, in total. Set it before use.
	//
	// Defaults to DefaultWait.
	Wait time.Duration

	// OnCommit is called by InTx instead of tx.Commit, for tests of a COMMIT whose answer is lost. It may fail before
	// or after it calls tx.Commit, or call it later. It owns tx. Set it before use.
	//
	// Defaults to tx.Commit.
	OnCommit func(ctx context.Context, tx *Tx) error

	// OnBegin is called by InTx with each transaction, before it claims. Set it before use.
	//
	// Defaults to none.
	OnBegin func(ctx context.Context, tx *Tx)

	// Clock is the clock of the Store's machine. Database.Now is the database's. Set it before use.
	//
	// Defaults to time.Now.
	Clock func() time.Time

	db    *Database
	mu    sync.Mutex
	names names.Names

	history int64 // see History; db.mu guards it, and server
	server  int
}

var (
	_ dedup.Store[*Tx]        = (*Store)(nil)
	_ driver.Registrar        = (*Store)(nil)
	_ driver.TxVerifier[*Tx]  = (*Store)(nil)
	_ driver.KeyProber        = (*Store)(nil)
	_ driver.ResultStore[*Tx] = (*Store)(nil)
	_ driver.Versioner[*Tx]   = (*Store)(nil)
	_ dedup.Archiver          = (*Store)(nil)
	_ driver.KeyReader        = (*Store)(nil)
)

// NewStore returns a Store on a new Database.
func NewStore() *Store { return NewDatabase().NewStore() }

// Database returns the database that the Store keeps its rows in. Several stores may share it, as several processes
// would.
func (s *Store) Database() *Database { return s.db }

// InTx implements dedup.Store.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx *Tx, claims []dedup.Claim) error) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return err
	}
	if s.OnBegin != nil {
		s.OnBegin(ctx, tx)
	}
	if err := s.handle(ctx, tx, recs, fn); err != nil {
		return err
	}
	if s.OnCommit != nil {
		return s.OnCommit(ctx, tx)
	}
	return tx.Commit(ctx)
}

// handle rolls tx back unless fn returned nil.
func (s *Store) handle(ctx context.Context, tx *Tx, recs []dedup.Record,
	fn func(tx *Tx, claims []dedup.Claim) error,
) (err error) {
	done := false
	defer func() {
		tx.guarded.Store(false)
		if !done { // an error, a panic or runtime.Goexit
			_ = tx.Rollback()
		}
	}()
	claims, err := s.Claim(ctx, tx, recs)
	if err != nil {
		return err
	}
	tx.guarded.Store(true)
	err = fn(tx, claims)
	done = err == nil
	if err != nil {
		err = tx.blame(err)
	}
	return err
}

// Claim implements dedup.Store.
func (s *Store) Claim(ctx context.Context, tx *Tx, recs []dedup.Record) ([]dedup.Claim, error) {
	keys := make([]dedup.KeyHash, len(recs))
	order := make([]int, len(recs))
	for i, r := range recs {
		if err := r.Validate(); err != nil {
			return nil, err
		}
		keys[i], order[i] = r.Key.Hash(), i
	}
	slices.SortStableFunc(order, func(i, j int) int { return keys[i].Compare(keys[j]) })
	if tx.guarded.Load() && len(recs) > 0 {
		if err := tx.announce("claim", recs[0].Key.ID); err != nil {
			return nil, err
		}
	}

	wait, _ := driver.ClaimWait(ctx, cmp.Or(s.Wait, DefaultWait))
	ctx, cancel := context.WithTimeoutCause(ctx, wait, dedup.ErrInFlight)
	defer cancel()
	claims := make([]dedup.Claim, len(recs))
	for _, i := range order {
		var err error
		if claims[i], err = s.claim(ctx, tx, keys[i], recs[i]); err != nil {
			if errors.Is(err, dedup.ErrInFlight) {
				err = fmt.Errorf("%w: %v", dedup.ErrInFlight, recs[i].Key)
			}
			return nil, tx.abort(err)
		}
	}
	return claims, nil
}

func (s *Store) claim(ctx context.Context, tx *Tx, key dedup.KeyHash, r dedup.Record) (dedup.Claim, error) {
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return dedup.Claim{}, err
	}
	s.saw()
	db.use(r.Key.Consumer, r.Keep())
	held := db.locks[key] != nil && db.locks[key].holder == tx
	if !held {
		if err := db.lock(ctx, tx, key); err != nil {
			return dedup.Claim{}, err
		}
	}
	machine := time.Now
	if s.Clock != nil {
		machine = s.Clock
	}
	claim, err := tx.claim(key, r, machine)
	if !held && claim.Verdict != dedup.First { // as in SQL, a row that was there before is not locked
		db.unlock(tx, key)
	}
	return claim, err
}

// claim looks for the row of r and inserts it in one critical section, so that no commit and no purge can happen in
// between.
func (tx *Tx) claim(key dedup.KeyHash, r dedup.Record, machine func() time.Time) (dedup.Claim, error) {
	db := tx.db
	if old := tx.row(key); old != nil {
		verdict := dedup.Duplicate
		switch {
		case old.key != r.Key:
			return dedup.Claim{}, fmt.Errorf("%w: %v and %v", dedup.ErrKeyCollision, r.Key, old.key)
		case !old.fingerprint.Matches(r.Fingerprint):
			verdict = dedup.Mismatch
		}
		return old.claim(verdict), nil
	}
	if !driver.Provable(r.Time, driver.Horizon(db.forgotten, slices.Collect(maps.Values(db.windows[r.Key.Consumer])))) {
		return dedup.Claim{Verdict: dedup.Unprovable}, nil
	}
	expires := db.now()
	if err := driver.ValidateTime(r, expires, machine()); err != nil {
		return dedup.Claim{}, err
	}
	if r.Time.After(expires) {
		expires = r.Time
	}
	tx.rows[key] = &row{key: r.Key, fingerprint: r.Fingerprint, expires: expires.Add(r.Keep())}
	return dedup.Claim{Verdict: dedup.First}, nil
}

// VerifyTx implements driver.TxVerifier.
func (s *Store) VerifyTx(_ context.Context, tx *Tx) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return tx.usable()
}

// HeldKeys implements driver.KeyProber, without waiting.
func (s *Store) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return nil, err
	}
	held := make([]bool, len(keys))
	for i, k := range keys {
		held[i] = s.db.locks[k.Hash()] != nil
	}
	return held, nil
}

// Forget implements dedup.Store.
func (s *Store) Forget(ctx context.Context, tx *Tx, keys ...dedup.Key) error {
	if len(keys) > 0 {
		if err := tx.announce("forget", keys[0].ID); err != nil {
			return err
		}
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, k := range keys {
		key := k.Hash()
		if err := tx.statement(ctx, key); err != nil {
			return err
		}
		tx.rows[key] = nil
	}
	return nil
}

// SaveResult implements driver.ResultStore.
func (s *Store) SaveResult(ctx context.Context, tx *Tx, key dedup.Key, result []byte) error {
	if err := tx.announce("save the result of", key.ID); err != nil {
		return err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	r := tx.rows[key.Hash()]
	if r == nil {
		return fmt.Errorf("deduptest: save result: %v is not claimed by this transaction", key)
	}
	r.result = append([]byte{}, result...)
	return nil
}

// Newer implements driver.Versioner.
func (s *Store) Newer(ctx context.Context, tx *Tx, object string, version int64) (newer bool, err error) {
	if err := driver.CheckObject(object); err != nil {
		return false, fmt.Errorf("deduptest: newer: %w", err)
	}
	err = tx.Update(ctx, "version of "+object, func(old any) any {
		highest, seen := old.(int64)
		if newer = !seen || version > highest; newer {
			return version
		}
		return highest
	})
	return newer, err
}

// Lookup implements driver.KeyReader.
func (s *Store) Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return dedup.Claim{}, false, err
	}
	r := s.db.rows[key.Hash()]
	if r == nil {
		return dedup.Claim{}, false, nil
	}
	return r.claim(dedup.Duplicate), true, nil
}

// Register implements driver.Registrar.
func (s *Store) Register(ctx context.Context, consumer string, window time.Duration) error {
	if err := (dedup.Record{Key: dedup.Key{Consumer: consumer, ID: "-"}, Window: window}).Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return err
	}
	if err := s.names.Take(ctx, consumer); err != nil {
		return err
	}
	s.db.use(consumer, dedup.Record{Window: window}.Keep())
	return nil
}

// Release implements driver.Registrar.
func (s *Store) Release(consumer string) { s.names.Free(consumer) }

// NameFree implements driver.Registrar.
func (s *Store) NameFree(consumer string) error { return s.names.NameFree(consumer) }

// Purge implements dedup.Purger. A Limit of 0 means 1000.
func (s *Store) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	return s.purge(ctx, by, func(dedup.Expired) bool { return true })
}

// PurgeArchived implements dedup.Archiver. A Limit of 0 means 1000.
func (s *Store) PurgeArchived(ctx context.Context, by dedup.Sweep,
	archive func(ctx context.Context, expired []dedup.Expired) error,
) (dedup.SweepResult, error) {
	var expired []dedup.Expired
	archived := map[dedup.KeyHash]bool{}
	swept, err := s.purge(ctx, by, func(row dedup.Expired) bool {
		if len(expired) < cmp.Or(by.Limit, 1000) {
			expired = append(expired, row)
			archived[row.Hash] = true
		}
		return false
	})
	if err != nil || swept.Busy {
		return swept, err
	}
	if len(expired) > 0 {
		if err := archive(ctx, expired); err != nil {
			return dedup.SweepResult{}, fmt.Errorf("deduptest: purge: %w", err)
		}
	}
	return s.purge(ctx, by, func(row dedup.Expired) bool { return archived[row.Hash] })
}

// purge deletes the expired rows that take accepts. If it accepts none, the next purge begins where this one has begun.
func (s *Store) purge(ctx context.Context, by dedup.Sweep, take func(dedup.Expired) bool,
) (swept dedup.SweepResult, err error) {
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.reachable(ctx); err != nil {
		return swept, err
	}
	now := db.now()
	swept.Clock = now
	if err := by.ClockAhead(now); err != nil {
		return swept, err
	}
	if by.Owner != db.sweeper && now.Before(db.leasedUntil) && !db.leasedUntil.After(now.Add(by.Lease)) {
		swept.Busy = true
		return swept, nil
	}
	db.sweeper, db.leasedUntil = by.Owner, now.Add(by.Lease)
	left := false // expired rows that take did not accept
	for _, key := range slices.SortedFunc(maps.Keys(db.rows), dedup.KeyHash.Compare) {
		r := db.rows[key]
		if db.locks[key] != nil || key.Compare(db.swept) < 0 || r.expires.After(now) {
			continue
		}
		if swept.Keys == cmp.Or(by.Limit, 1000) {
			db.swept = key
			return swept, nil
		}
		if !take(dedup.Expired{Hash: key, Key: r.key, Fingerprint: r.fingerprint, ExpiresAt: r.expires, Result: bytes.Clone(r.result)}) {
			left = true
			continue
		}
		delete(db.rows, key)
		swept.Keys++
		swept.Lag = max(swept.Lag, now.Sub(r.expires))
		if r.expires.After(db.forgotten) {
			db.forgotten = r.expires
		}
	}
	if left {
		return swept, nil
	}
	db.swept, swept.Done = dedup.KeyHash{}, true
	return swept, nil
}

// Retryable implements dedup.Store. It is true for ErrDeadlock, ErrDown and dedup.ErrClocks.
func (s *Store) Retryable(err error) bool {
	return errors.Is(err, ErrDeadlock) || errors.Is(err, ErrDown) || errors.Is(err, dedup.ErrClocks)
}

// row is one claim. A committed row is never changed.
type row struct {
	key         dedup.Key
	fingerprint dedup.Fingerprint
	expires     time.Time
	result      []byte
}

func (r *row) claim(v dedup.Verdict) dedup.Claim {
	return dedup.Claim{Verdict: v, Fingerprint: r.fingerprint, ExpiresAt: r.expires, Result: bytes.Clone(r.result)}
}
