package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/adapters/sqlstore/internal/mysql"
	"github.com/txonce/txonce/adapters/sqlstore/internal/postgres"
	"github.com/txonce/txonce/adapters/sqlstore/internal/sqlite"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/positions"
)

// Store implements dedup.Store, driver.ParkingLot, outbox.Writer and driver.Queue. It is safe for concurrent use.
type Store struct {
	cfg    Config
	db     engine.Engine
	leases claims.Leases
	now    func() time.Time // this machine's clock; tests set other times
	names  claims.Names
	tried  atomic.Bool // see checkStart
	outbox outboxHub

	running running

	*positions.Keeper
	history claims.History // of the servers that claims have met

	location location

	idleLimit    any           // Config.IdleInTxTimeout in the server's syntax; nil: no limit
	answerWithin time.Duration // see engine.AnswerWithin; shorter in tests
}

var (
	_ dedup.Store[*sql.Tx]        = (*Store)(nil)
	_ driver.ResultStore[*sql.Tx] = (*Store)(nil)
	_ driver.Versioner[*sql.Tx]   = (*Store)(nil)
	_ driver.Registrar            = (*Store)(nil)
	_ dedup.Archiver              = (*Store)(nil)
	_ driver.KeyReader            = (*Store)(nil)
	_ driver.TxVerifier[*sql.Tx]  = (*Store)(nil)
	_ driver.FaultClassifier      = (*Store)(nil)
	_ driver.Positions            = (*Store)(nil)
	_ driver.CallStore[*sql.Tx]   = (*Store)(nil)
)

var engines = map[Dialect]func(engine.Config) (engine.Engine, error){
	SQLite: sqlite.New, Postgres: postgres.New,
	MySQL: mysql.New,
}

// New returns a Store. It does not connect to the database; Register does.
func New(cfg Config) (*Store, error) {
	switch {
	case cfg.DB == nil:
		return nil, errors.New("sqlstore: Config.DB is required")
	case strings.ContainsAny(cfg.Schema, "\"'`\x00"):
		return nil, fmt.Errorf("sqlstore: Config.Schema %q contains a quote or NUL", cfg.Schema)
	case cfg.ClaimTimeout < 0, cfg.ClaimTimeout > 0 && cfg.ClaimTimeout < time.Millisecond:
		return nil, fmt.Errorf("sqlstore: Config.ClaimTimeout %v is shorter than 1 ms", cfg.ClaimTimeout)
	case cfg.IdleInTxTimeout > 0 && cfg.IdleInTxTimeout < time.Millisecond:
		return nil, fmt.Errorf("sqlstore: Config.IdleInTxTimeout %v is shorter than 1 ms", cfg.IdleInTxTimeout)
	case cfg.Outbox.KeepSent < 0:
		return nil, fmt.Errorf("sqlstore: Config.Outbox.KeepSent %v is negative", cfg.Outbox.KeepSent)
	case cfg.Outbox.Listen != nil && cfg.Dialect != Postgres:
		return nil, fmt.Errorf("sqlstore: Config.Outbox.Listen is set, and Config.Dialect is %q: only %q has notifications", cfg.Dialect, Postgres)
	}
	cfg.IdleInTxTimeout = cmp.Or(cfg.IdleInTxTimeout, 5*time.Minute)
	cfg.ClaimTimeout = cmp.Or(cfg.ClaimTimeout, 5*time.Second)
	s := &Store{cfg: cfg, now: time.Now, answerWithin: engine.AnswerWithin}
	s.Keeper = &positions.Keeper{DB: operatorDB{s}, Seen: &s.history}
	if cfg.IdleInTxTimeout > 0 {
		s.idleLimit = fmt.Sprintf("%dms", cfg.IdleInTxTimeout.Milliseconds())
	}
	open, known := engines[cfg.Dialect]
	if !known {
		return nil, fmt.Errorf("sqlstore: Config.Dialect %q: want %q, %q or %q", cfg.Dialect, SQLite, Postgres, MySQL)
	}
	var err error
	s.db, err = open(engine.Config{
		DB: cfg.DB, Schema: cfg.Schema, Isolation: cfg.Isolation, ClaimTimeout: cfg.ClaimTimeout,
		IdleInTxTimeout: cfg.IdleInTxTimeout,
		Compact:         cfg.Compact, AllowAsyncCommit: cfg.AllowAsyncCommit, KeepSent: cfg.Outbox.KeepSent,
	})
	if err != nil {
		return nil, err
	}
	s.location.found.Store(cfg.Schema != "" || cfg.Dialect == SQLite)
	return s, nil
}

// InTx implements dedup.Store.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx *sql.Tx, answers []dedup.Claim) error) error {
	plan, err := claims.NewPlan(recs)
	if err != nil {
		return err
	}
	for range claims.Attempts {
		var again bool
		if again, err = s.inTx(ctx, plan, fn); !again {
			return err
		}
	}
	return engine.Database.Errorf("sqlstore: %w", err)
}

// inTx is one attempt of InTx. again reports that the claim was undone before fn ran, and must be repeated.
func (s *Store) inTx(ctx context.Context, plan *claims.Plan,
	fn func(tx *sql.Tx, answers []dedup.Claim) error,
) (again bool, err error) {
	if err := s.useWindows(ctx, plan.Windows()); err != nil {
		return false, err
	}
	t, err := s.begin(ctx, s.cfg.Isolation)
	if err != nil {
		return false, err
	}
	defer t.close() // rolls back an uncommitted transaction, also after a panic or Goexit of fn
	c := s.newClaim(plan, t.Tx)
	c.Own, c.IdleInTxTimeout = true, s.idleLimit
	t.Claim = c
	answers, err := s.runClaim(ctx, c)
	switch {
	case errors.Is(err, claims.ErrAgain):
		return true, err
	case errors.Is(err, dedup.ErrNotDurable):
		// only this session may be affected: another one may have the settings that Register checked
		t.Spoilt = true
		return true, err
	case err != nil:
		f := s.fault(err)
		// the session's role or another setting may be the cause
		t.Spoilt = f.Refused || f.Undefined || f.Full || f.ReadOnly
		return false, err
	}
	if err := t.stamp(ctx); err != nil {
		return false, err
	}
	if driver.LockWaitsRefused(ctx) {
		if err := s.claimError(s.db.Transactions.ShortenLockWaits(ctx, &t.Transaction)); err != nil {
			return false, err
		}
	}
	s.outbox.watch(t.Tx)
	defer s.outbox.forget(t.Tx)
	if err := t.run(ctx, fn, answers); err != nil {
		// settings that the handler made in other transactions stay in the session
		t.Spoilt = t.Spoilt || s.fault(err).Full || s.fault(err).ReadOnly || errors.Is(err, dedup.ErrTxEnded)
		return false, t.markInDoubt(err)
	}
	err = t.markInDoubt(t.commit())
	if s.outbox.has(t.Tx) {
		s.Wake(ctx) // also after a rollback: a needless Wake does no harm
	}
	return false, err
}

// run runs fn, and returns nil if COMMIT may be sent.
func (t *transaction) run(ctx context.Context, fn func(tx *sql.Tx, answers []dedup.Claim) error,
	answers []dedup.Claim,
) error {
	t.store.running.add(t)
	defer t.store.running.remove(t.Tx)
	err := fn(t.Tx, answers)
	switch {
	case t.failed != nil && errors.Is(err, t.failed):
		return err
	case t.failed != nil:
		return t.failed
	case err != nil:
		return t.explain(err)
	}
	err = t.check(ctx, t.store.db.Proofs.Verify)
	if ctx.Err() != nil && !errors.Is(err, dedup.ErrTxEnded) && !errors.As(err, new(*dedup.InDoubtError)) {
		return fmt.Errorf("sqlstore: not committed: %w", ctx.Err())
	}
	return err
}

// Claim implements dedup.Store.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, recs []dedup.Record) ([]dedup.Claim, error) {
	plan, err := claims.NewPlan(recs)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	if err := s.locate(ctx, tx); err != nil {
		return nil, err
	}
	c := s.newClaim(plan, tx)
	due := s.leases.Due(plan.Windows(), time.Now())
	if s.db.OwnWindows != nil {
		c.Registered, err = s.db.OwnWindows.UseWindowsIn(ctx, tx, due)
		err = s.claimError(err)
	} else {
		err = s.useElsewhere(ctx, due)
	}
	if err != nil {
		return nil, err
	}
	answers, err := s.runClaim(ctx, c)
	if errors.Is(err, claims.ErrAgain) { // the next attempt registers first and then begins its transaction
		return nil, engine.Database.Errorf("sqlstore: %w", err)
	}
	return answers, err
}

// Forget implements dedup.Store.
func (s *Store) Forget(ctx context.Context, tx *sql.Tx, keys ...dedup.Key) error {
	derived := make([]dedup.KeyHash, len(keys))
	for i, k := range keys {
		derived[i] = k.Hash()
	}
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.db.Tables.Statements().Forget, s.db.Values.Keys(derived))
	return s.statementError(err)
}

// SaveResult implements driver.ResultStore.
func (s *Store) SaveResult(ctx context.Context, tx *sql.Tx, key dedup.Key, result []byte) error {
	if result == nil {
		result = []byte{} // NULL means that no result was saved
	}
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	found, err := s.db.Claims.SaveResult(ctx, tx, key.Hash(), result)
	if err == nil && !found {
		return fmt.Errorf("sqlstore: save result: %v is not claimed", key)
	}
	return s.statementError(err)
}

// Lookup implements driver.KeyReader.
func (s *Store) Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error) {
	if err := key.Validate(); err != nil {
		return dedup.Claim{}, false, err
	}
	if err := s.locate(ctx, nil); err != nil {
		return dedup.Claim{}, false, err
	}
	var row claims.Stored
	err = s.db.Transactions.RetryBusy(ctx, func() error {
		return s.cfg.DB.QueryRowContext(ctx, s.db.Tables.Statements().Lookup,
			s.db.Values.Key(key.Hash())).Scan(engine.Dest(&row)...)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return dedup.Claim{}, false, nil
	case err != nil:
		return dedup.Claim{}, false, s.claimError(err)
	}
	c, err = row.Claim(key)
	return c, err == nil, err
}
