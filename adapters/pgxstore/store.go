package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// Config of a Store.
type Config struct {
	// Pool is the application's own pool, in whose database handlers write. Required; the Store does not close it.
	Pool *pgxpool.Pool

	// Direct is how LISTEN reaches the database where Pool leads through a pooler in transaction mode, which has none. Without
	// it relays of other processes poll, which is said once. Defaults to connecting as Pool does.
	Direct *pgx.ConnConfig

	// Schema holds the tables of package migrations. Set it where the search_path of a session depends on a tenant: the
	// Store uses one schema for all.
	//
	// Defaults to the schema in which search_path finds table txonce_schema at the first use.
	Schema string

	// Isolation of transactions that InTx begins. Above READ COMMITTED a conflict fails with a Retryable error, and each
	// claim costs a round trip more. Defaults to READ COMMITTED, whatever default_transaction_isolation says.
	Isolation pgx.TxIsoLevel

	// ClaimTimeout is how long a claim waits for transactions that hold its keys, and for the database itself. A claim
	// that has waited in vain costs its connection. At least 1 ms. Defaults to 5 s.
	ClaimTimeout time.Duration

	// IdleInTxTimeout is how long a transaction of InTx may stand idle between two statements before the server ends it, and so
	// frees the claims of a process that is frozen or cut off. A handler that waits for somebody else must need less.
	// The session's own idle_in_transaction_session_timeout, if there is one, stands. At least 1 ms; negative: no limit.
	//
	// The limit does not run while the server waits for the client within a statement: for the rows of a COPY, or because
	// nobody reads a large result. A process that freezes there keeps its claims until its TCP connection ends, or
	// pg_terminate_backend ends the session. Set tcp_user_timeout on the server where a machine may vanish.
	//
	// Defaults to 5 minutes.
	IdleInTxTimeout time.Duration

	// Compact leaves the columns consumer, tenant and id NULL: about 40 bytes less per key, and nobody can read the
	// table. Defaults to false.
	Compact bool

	// AllowAsyncCommit accepts a database that may forget a commit after a crash (synchronous_commit off or local, fsync
	// off): a message whose effect it forgot is not delivered again.
	//
	// Without it COMMIT runs with the synchronous_commit that the claim found, also after a handler's SET LOCAL; only what a
	// database function sets is not seen. Defaults to false: Register fails with ErrNotDurable.
	AllowAsyncCommit bool

	// Logger gets one line for whatever a person should know. Defaults to slog.Default().
	Logger *slog.Logger

	// Outbox says how messages to publish are kept.
	Outbox OutboxConfig
}

// Store is a dedup.Store and a consumer.ParkingLot. It is safe for concurrent use.
type Store struct {
	cfg          Config
	plain        dialect.Postgres // of which only statements without a table are sent, which need no resolve
	sql          dialect.Postgres
	writes       dialect.PostgresOutboxWrite
	outbox       dialect.PostgresOutbox
	idle         *string // IdleInTxTimeout as the server takes it; nil: none
	windowLeases claims.Leases
	now          func() time.Time // this machine's clock; tests set it wrong
	names        claims.Names
	spare        chan struct{} // above READ COMMITTED: leaves one of the pool's connections to read the horizon; else nil

	resolved     atomic.Bool // the statements name the schema, see resolve
	resolving    sync.Mutex
	sessionState atomic.Pointer[string] // as Register or the first claim found it, see dialect.Postgres.Session
	warned       sync.Once              // about handlers that change their session

	poolerKnown, pooled atomic.Bool   // see checkPooler
	poolerWithin        time.Duration // for finding out; tests on a busy machine give it longer
	endWithin           time.Duration // for COMMIT; tests give it less

	shards   atomic.Int64 // of the outbox; 0: not read yet
	wakes    broadcaster
	notifier notifier
	listener listener
}

// New returns a Store. It does not touch the database: see Register.
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
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.IdleInTxTimeout == 0 {
		cfg.IdleInTxTimeout = 5 * time.Minute
	}
	if cfg.ClaimTimeout == 0 {
		cfg.ClaimTimeout = 5 * time.Second
	}
	switch cfg.Isolation {
	case "":
		cfg.Isolation = pgx.ReadCommitted
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("pgxstore: Config.Isolation %q: want %q, %q or %q", cfg.Isolation, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable)
	}
	s := &Store{cfg: cfg, now: time.Now, plain: dialect.NewPostgres(""), poolerWithin: poolerWithin, endWithin: endTimeout}
	if cfg.Schema != "" {
		s.useSchema(cfg.Schema)
	}
	if cfg.IdleInTxTimeout > 0 {
		limit := fmt.Sprintf("%dms", cfg.IdleInTxTimeout.Milliseconds())
		s.idle = &limit
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

// endTimeout bounds COMMIT and ROLLBACK, which must not be cut short by the end of ctx: a COMMIT without an answer has
// an unknown outcome.
const endTimeout = 10 * time.Second

// InTx implements dedup.Store.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
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
	return claims.DatabaseErrorf("pgxstore: %w", err)
}

// inTx is one attempt. again says that the claim was undone before fn ran, and must be made again.
func (s *Store) inTx(ctx context.Context, plan *claims.Plan, fn func(tx pgx.Tx, answers []dedup.Claim) error) (again bool, err error) {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return false, err
	}
	if err := s.useWindows(ctx, plan); err != nil {
		return false, err
	}
	if s.spare != nil {
		select {
		case s.spare <- struct{}{}:
			defer func() { <-s.spare }()
		case <-ctx.Done():
			return false, claims.DatabaseErrorf("pgxstore: connect: %w", ctx.Err())
		}
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return false, claims.DatabaseErrorf("pgxstore: connect: %w", err)
	}
	defer conn.Release()

	c := s.newClaim(plan)
	c.conn, c.idleLimit = conn.Conn(), s.idle
	defer func() { // also on a panic or Goexit of fn; does nothing after COMMIT
		if c.tx != nil {
			rollback(ctx, c.tx)
		}
	}()
	answers, err := c.Make(ctx, c)
	if err == nil {
		err = s.fits(ctx, c.sessionState, c.standbys)
	}
	if err != nil {
		if errors.Is(err, errDeviates) || blamesSession(err) {
			s.discard(ctx, conn.Conn())
		}
		return errors.Is(err, claims.ErrAgain), err
	}
	return false, s.handle(ctx, c, answers, fn)
}

// handle runs fn in the transaction that has claimed, and commits it.
func (s *Store) handle(ctx context.Context, c *claim, answers []dedup.Claim, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	g := &guard{store: s, ctx: ctx, conn: c.conn, tx: c.tx, xid: c.xid, sessionState: c.sessionState, standbys: c.standbys, latest: time.Now()}
	defer g.leave(ctx)
	if err := fn(&guarded{Tx: c.tx, g: g}, answers); err != nil {
		return g.lookBack(ctx, g.blame(err))
	}
	if err := g.finish(ctx); err != nil {
		return g.lookBack(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgxstore: not committed: %w", err)
	}
	waiting, wakes := g.shut()
	if err := s.commit(ctx, c.tx, waiting, c.standbys); err != nil {
		if isIdle(err) { // there was no transaction any more when COMMIT came
			return idleError(s.cfg.IdleInTxTimeout, err)
		}
		return err
	}
	for _, w := range wakes {
		w.store.wake(ctx, w.shards)
	}
	return nil
}

// commit ends the transaction. What waits to be enqueued becomes part of it first.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, waiting []outgoing, standbys bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.endWithin)
	defer cancel()
	if standbys && !s.cfg.AllowAsyncCommit {
		if _, err := s.write(ctx, tx, waiting); err != nil {
			return lostBefore(err)
		}
		return commitError(commitReplicated(ctx, tx.Conn().PgConn()))
	}
	if len(waiting) > 0 {
		return s.writeAndCommit(ctx, tx, waiting)
	}
	return commitError(tx.Commit(ctx))
}

func commitError(err error) error {
	if err != nil && !isDefinite(err) && !isIdle(err) {
		return claims.DatabaseErrorf("pgxstore: commit: %w", err)
	}
	return err
}

func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	defer func() { // pgx panics where a goroutine that the handler left behind still uses the connection
		if recover() != nil {
			_ = tx.Conn().PgConn().Conn().Close()
		}
	}()
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return // COMMIT was sent otherwise, which tx knows nothing of
	}
	_ = tx.Rollback(ctx) // a connection that cannot roll back is closed by pgx, which rolls back
}

// Claim implements dedup.Store. A claim that waited in vain has closed the connection of tx.
func (s *Store) Claim(ctx context.Context, tx pgx.Tx, recs []dedup.Record) ([]dedup.Claim, error) {
	plan, err := claims.NewPlan(recs)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout) // for callers that hold all of the pool's connections
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
	if errors.Is(err, claims.ErrAgain) { // the caller must begin a new transaction, and claim in that
		err = claims.DatabaseErrorf("pgxstore: %w", err)
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
	return s.stepError("forget", err)
}

// SaveResult implements dedup.ResultStore.
func (s *Store) SaveResult(ctx context.Context, tx pgx.Tx, key dedup.Key, result []byte) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	if result == nil {
		result = []byte{} // NULL says that none was saved
	}
	tag, err := tx.Exec(ctx, s.sql.SaveResult, pgUUID(key.Hash()), result)
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("pgxstore: save result: %v is not claimed", key)
	}
	return s.stepError("save result", err)
}
