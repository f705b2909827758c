package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/internal/wakes"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Store is a dedup.Store, a driver.ParkingLot, an outbox.Writer and an driver.Queue. It is safe for concurrent use.
type Store struct {
	faultClasses
	*sessions

	idle         any // IdleInTxTimeout in the server's format; nil: no limit
	windowLeases claims.Leases
	now          func() time.Time // this machine's clock; tests replace it
	names        claims.Names
	spare        chan struct{} // keeps one of the pool's connections free to read the horizon; nil at READ COMMITTED

	endWithin            time.Duration // limit for COMMIT; tests shorten it
	lingers, stallsAfter time.Duration // see Interleave; tests change them

	repeats repeats

	shards     atomic.Int64 // number of the outbox's shards; 0: not read yet
	wakes      wakes.Broadcaster
	notifier   notifier
	listener   listener
	relayConns relayConns
}

var (
	_ dedup.Store[pgx.Tx]                = (*Store)(nil)
	_ driver.ResultStore[pgx.Tx]         = (*Store)(nil)
	_ driver.KeyReader                   = (*Store)(nil)
	_ dedup.Purger                       = (*Store)(nil)
	_ driver.Registrar                   = (*Store)(nil)
	_ driver.KeyProber                   = (*Store)(nil)
	_ driver.PoolReporter                = (*Store)(nil)
	_ driver.TxVerifier[pgx.Tx]          = (*Store)(nil)
	_ driver.Interleaver[pgx.Tx]         = (*Store)(nil)
	_ driver.FaultClassifier             = (*Store)(nil)
	_ consumerdriver.ParkingLot[pgx.Tx]  = (*Store)(nil)
	_ consumerdriver.ReplayQueue[pgx.Tx] = (*Store)(nil)
	_ outbox.Writer[pgx.Tx]              = (*Store)(nil)
	_ outboxdriver.Queue                 = (*Store)(nil)
)

// New returns a Store. It does not connect to the database. The consumer calls Register at its start.
func New(cfg Config) (*Store, error) {
	switch {
	case cfg.Pool == nil:
		return nil, errors.New("pgxstore: Config.Pool is required")
	case strings.ContainsAny(cfg.Schema, "\"'\x00"):
		return nil, fmt.Errorf("pgxstore: Config.Schema %q contains a quote or NUL", cfg.Schema)
	case cfg.ClaimTimeout < 0, cfg.ClaimTimeout > 0 && cfg.ClaimTimeout < time.Millisecond:
		return nil, fmt.Errorf("pgxstore: Config.ClaimTimeout %v is shorter than 1 ms", cfg.ClaimTimeout)
	case cfg.IdleInTxTimeout > 0 && cfg.IdleInTxTimeout < time.Millisecond:
		return nil, fmt.Errorf("pgxstore: Config.IdleInTxTimeout %v is shorter than 1 ms", cfg.IdleInTxTimeout)
	}
	if err := cfg.Outbox.validate(); err != nil {
		return nil, err
	}
	cfg.Logger = usercode.Logger(cfg.Logger)
	cfg.IdleInTxTimeout = cmp.Or(cfg.IdleInTxTimeout, 5*time.Minute)
	cfg.ClaimTimeout = cmp.Or(cfg.ClaimTimeout, 5*time.Second)
	switch cfg.Isolation {
	case "":
		cfg.Isolation = pgx.ReadCommitted
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("pgxstore: Config.Isolation %q: want %q, %q or %q", cfg.Isolation, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable)
	}
	s := &Store{sessions: newSessions(cfg), now: time.Now, endWithin: endTimeout, lingers: lingers, stallsAfter: stallsAfter}
	if cfg.IdleInTxTimeout > 0 {
		s.idle = fmt.Sprintf("%dms", cfg.IdleInTxTimeout.Milliseconds())
	}
	if cfg.Isolation != pgx.ReadCommitted {
		most := int(cfg.Pool.Config().MaxConns)
		if most < 2 {
			return nil, fmt.Errorf("pgxstore: Config.Isolation %q needs a Config.Pool of at least 2 connections", cfg.Isolation)
		}
		s.spare = make(chan struct{}, most-1)
	}
	return s, nil
}

// Claim implements dedup.Store. When a claim's wait times out, the connection of tx is closed.
func (s *Store) Claim(ctx context.Context, tx pgx.Tx, recs []dedup.Record) ([]dedup.Claim, error) {
	plan, err := claims.NewPlan(recs)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout) // because the callers may hold all of the pool's connections
	err = s.resolve(limited, s.cfg.Pool)
	cancel()
	if err != nil {
		return nil, err
	}
	if err := s.useWindows(ctx, plan); err != nil {
		return nil, err
	}
	c := s.newClaim(plan)
	c.tx = tx
	answers, err := c.Make(ctx, c)
	if errors.Is(err, claims.ErrAgain) { // the caller must claim again in a new transaction
		err = database.Errorf("pgxstore: %w", err)
	}
	return answers, err
}

// Forget implements dedup.Store.
func (s *Store) Forget(ctx context.Context, tx pgx.Tx, keys ...dedup.Key) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	derived := make([]dedup.KeyHash, len(keys))
	for i, k := range keys {
		derived[i] = k.Hash()
	}
	_, err := tx.Exec(ctx, s.sql.Forget, pgUUIDs(derived))
	return stepError("forget", err)
}
