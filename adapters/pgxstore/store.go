package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/interleave"
	"github.com/txonce/txonce/consumer"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/operator"
	"github.com/txonce/txonce/internal/positions"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Store is a dedup.Store, a driver.ParkingLot, an outbox.Writer and a driver.Queue. It is safe for concurrent use.
type Store struct {
	// The methods of Store itself run transactions. The others belong to its parts. A part knows the parts that it
	// embeds, and no part knows the Store.

	faultClasses
	*sessions // Config, the statements (schema) and the connections (pooler)
	*keys     // embeds sessions, as do sweeper and parkingLot
	*sweeper
	*parkingLot
	*notifier // embeds sessions
	// embeds writer, which embeds notifier; a claim and its guard know no more of the Store than the claimer
	*claimer
	*registrar   // embeds claimer
	*outboxQueue // uses registrar and notifier
	*positions.Keeper

	service  *operator.Service   // for Operator
	spare    chan struct{}       // keeps one of the pool's connections free to read the horizon; nil at READ COMMITTED
	patience interleave.Patience // tests change it
}

var (
	_ dedup.Store[pgx.Tx]                = (*Store)(nil)
	_ driver.ResultStore[pgx.Tx]         = (*Store)(nil)
	_ driver.Versioner[pgx.Tx]           = (*Store)(nil)
	_ driver.KeyReader                   = (*Store)(nil)
	_ dedup.Archiver                     = (*Store)(nil)
	_ driver.Registrar                   = (*Store)(nil)
	_ driver.KeyProber                   = (*Store)(nil)
	_ driver.PoolReporter                = (*Store)(nil)
	_ driver.TxVerifier[pgx.Tx]          = (*Store)(nil)
	_ driver.Interleaver[pgx.Tx]         = (*Store)(nil)
	_ driver.LateClaimer                 = (*Store)(nil)
	_ driver.Positions                   = (*Store)(nil)
	_ driver.CallStore[pgx.Tx]           = (*Store)(nil)
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
		return nil, fmt.Errorf("pgxstore: Config.Isolation %q: want %q, %q or %q", cfg.Isolation, pgx.ReadCommitted,
			pgx.RepeatableRead, pgx.Serializable)
	}
	on := newSessions(cfg)
	c := newClaimer(&writer{notifier: &notifier{sessions: on}, endWithin: endTimeout})
	r := &registrar{claimer: c}
	s := &Store{
		sessions: on, notifier: c.notifier, claimer: c, registrar: r,
		keys: &keys{on}, sweeper: &sweeper{on}, parkingLot: &parkingLot{on}, outboxQueue: newOutboxQueue(r),
	}
	s.Keeper = &positions.Keeper{DB: operatorDB{on}, Seen: &c.history}
	s.service = &operator.Service{DB: operatorDB{on}, Letters: s.parkingLot, Queue: s.Outbox()}
	if cfg.Isolation != pgx.ReadCommitted {
		most := int(cfg.Pool.Config().MaxConns)
		if most < 2 {
			return nil, fmt.Errorf("pgxstore: Config.Isolation %q needs a Config.Pool of at least 2 connections",
				cfg.Isolation)
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
	// because the callers may hold all of the pool's connections
	limited, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	err = s.resolve(limited, s.cfg.Pool)
	cancel()
	if err != nil {
		return nil, err
	}
	if err := s.useWindows(ctx, plan); err != nil {
		return nil, err
	}
	c := s.newClaim(plan, nil)
	c.tx = tx
	answers, err := c.Make(ctx, c)
	if errors.Is(err, claims.ErrAgain) { // the caller must claim again in a new transaction
		err = database.Errorf("pgxstore: %w", err)
	}
	return answers, err
}

// Operator returns what operators ask and request of this store's database: see package consumer/ops.
func (s *Store) Operator() ops.Store {
	return operators{Service: s.service, letters: s.parkingLot, claimer: s.claimer, inTx: s.InTx}
}

// Activity returns what keeps the rates of consumers for dashboards: see ops.Recorder.
func (s *Store) Activity() ops.ActivityKeeper { return s.service }

// TakeReplay implements driver.ReplayQueue.
func (s *Store) TakeReplay(ctx context.Context, name string,
	lease time.Duration,
) (*driver.RequestedReplay, consumer.DeadLetter, time.Duration, error) {
	return s.service.TakeReplay(ctx, name, lease)
}

// ReturnReplay implements driver.ReplayQueue.
func (s *Store) ReturnReplay(ctx context.Context, action [16]byte, letter consumer.DeadLetterID, failed observe.Cause,
	text string, wait time.Duration,
) error {
	return s.service.ReturnReplay(ctx, action, letter, failed, text, wait)
}
