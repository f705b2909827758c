package pgxstore

import (
	"cmp"
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

// Config configures a Store.
type Config struct {
	// Pool is the application's own pool. Handlers write to its database. Required; the Store does not close it.
	Pool *pgxpool.Pool

	// Direct configures the connection for LISTEN when Pool connects through a pooler in transaction mode, which does not
	// support LISTEN. Without it, relays in other processes find messages by polling, and the Store logs one warning.
	//
	// Defaults to connecting as Pool does.
	Direct *pgx.ConnConfig

	// Schema is the schema that holds the tables of package migrations. Set it when the search_path of a session depends on a
	// tenant: the Store uses one schema for all.
	//
	// Defaults to the schema that search_path resolves table txonce_schema to on first use.
	Schema string

	// Isolation is the isolation level of transactions that InTx begins. Above READ COMMITTED a conflict fails with a Retryable
	// error, and each claim costs one more round trip.
	//
	// Defaults to READ COMMITTED, whatever default_transaction_isolation says.
	Isolation pgx.TxIsoLevel

	// ClaimTimeout is how long a claim waits for transactions that hold its keys, and for the database itself. When it expires,
	// the claim's connection is closed. At least 1 ms.
	//
	// Defaults to 5 s.
	ClaimTimeout time.Duration

	// IdleInTxTimeout is how long a transaction of InTx may be idle between two statements before the server ends it. This
	// frees the claims of a process that is frozen or disconnected. A handler that calls another system between two statements
	// must finish sooner. If the session sets idle_in_transaction_session_timeout itself, that value is used instead. At least
	// 1 ms; negative: no limit.
	//
	// The limit does not apply while the server waits for the client within a statement: for the rows of a COPY, or until the
	// client reads a large result. A process that freezes there keeps its claims until its TCP connection ends, or until
	// pg_terminate_backend ends the session. Set tcp_user_timeout on the server if a machine may disappear.
	//
	// Defaults to 5 minutes.
	IdleInTxTimeout time.Duration

	// Compact leaves the columns consumer, tenant and id NULL. This saves about 40 bytes per key, but the rows no longer show
	// which message they belong to.
	//
	// Defaults to false.
	Compact bool

	// AllowAsyncCommit accepts a database that may lose a commit in a crash (synchronous_commit off or local, fsync off). A
	// message whose effect was lost this way is not delivered again.
	//
	// Without it, COMMIT uses the synchronous_commit that the claim found, even after a handler's SET LOCAL. A change that a
	// database function makes is not detected.
	//
	// Defaults to false: Register fails with ErrNotDurable.
	AllowAsyncCommit bool

	// Logger gets one line for each event that an operator should know about.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Outbox configures how outbox messages are stored.
	Outbox OutboxConfig
}

// Store is a dedup.Store, a consumer.ParkingLot, an outbox.Writer and an outbox.Queue. It is safe for concurrent use.
type Store struct {
	cfg          Config
	plain        dialect.Postgres // only for statements without a table; these need no resolve
	sql          dialect.Postgres
	writes       dialect.PostgresOutboxWrite
	outbox       dialect.PostgresOutbox
	operations   dialect.Operator
	idle         any // IdleInTxTimeout in the server's format; nil: no limit
	windowLeases claims.Leases
	now          func() time.Time // this machine's clock; tests replace it
	names        claims.Names
	spare        chan struct{} // keeps one of the pool's connections free to read the horizon; nil at READ COMMITTED
	chainable    bool          // a claim may travel with COMMIT, see Sequence

	resolved     atomic.Bool // the statements include the schema, see resolve
	resolving    sync.Mutex
	sessionState atomic.Pointer[string] // the state that Register or the first claim found, see dialect.Postgres.Session
	warned       sync.Once              // limits the warning about handlers that change their session

	poolerKnown, pooled  atomic.Bool   // see checkPooler
	poolerWithin         time.Duration // limit for checkPooledMode; tests on a busy machine extend it
	endWithin            time.Duration // limit for COMMIT; tests shorten it
	lingers, stallsAfter time.Duration // see Fork; tests change them

	repeats repeats

	shards     atomic.Int64 // number of the outbox's shards; 0: not read yet
	wakes      broadcaster
	notifier   notifier
	listener   listener
	relayConns relayConns
}

// New returns a Store. It does not connect to the database. Register does.
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.IdleInTxTimeout = cmp.Or(cfg.IdleInTxTimeout, 5*time.Minute)
	cfg.ClaimTimeout = cmp.Or(cfg.ClaimTimeout, 5*time.Second)
	switch cfg.Isolation {
	case "":
		cfg.Isolation = pgx.ReadCommitted
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("pgxstore: Config.Isolation %q: want %q, %q or %q", cfg.Isolation, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable)
	}
	s := &Store{cfg: cfg, now: time.Now, plain: dialect.NewPostgres(""), poolerWithin: poolerWithin, endWithin: endTimeout, lingers: lingers, stallsAfter: stallsAfter}
	if cfg.Schema != "" {
		s.useSchema(cfg.Schema)
	}
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
	s.chainable = s.spare == nil && chainable(cfg.Pool.Config())
	return s, nil
}

// endTimeout bounds COMMIT and ROLLBACK. They ignore the end of ctx, because a COMMIT without an answer has an unknown outcome.
const endTimeout = 10 * time.Second

// InTx implements dedup.Store. If all keys have rows already, the transaction of fn begins when fn first uses it.
func (s *Store) InTx(ctx context.Context, recs []dedup.Record, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	return s.repeat(ctx, recs, nil, fn)
}

// repeat is InTx as a part of q.
func (s *Store) repeat(ctx context.Context, recs []dedup.Record, q *sequence, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	plan, err := claims.NewPlan(recs)
	if err != nil {
		return err
	}
	for range claims.Attempts {
		var again bool
		if again, err = s.inTx(ctx, plan, q, fn); !again {
			return err
		}
	}
	return database.Errorf("pgxstore: %w", err)
}

// inTx makes one attempt. If again is true, the claim was rolled back before fn ran and must be repeated.
func (s *Store) inTx(ctx context.Context, plan *claims.Plan, q *sequence, fn func(tx pgx.Tx, answers []dedup.Claim) error) (again bool, err error) {
	if sent := q.take(); sent != nil {
		q.use(ctx, sent.conn)
		return s.onConn(ctx, sent.claim, sent.conn, q, fn)
	}
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
			return false, database.Errorf("pgxstore: connect: %w", ctx.Err())
		}
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return false, database.Errorf("pgxstore: connect: %w", err)
	}
	q.use(ctx, conn)
	c := s.newClaim(plan)
	c.conn, c.idleLimit, c.Look = conn.Conn(), s.idle, len(plan.Rows) > 0 && (plan.Redelivered() || s.repeats.likely())
	return s.onConn(ctx, c, conn, q, fn)
}

// onConn runs the transaction of c on conn, and releases conn.
func (s *Store) onConn(ctx context.Context, c *claim, conn *pgxpool.Conn, q *sequence, fn func(tx pgx.Tx, answers []dedup.Claim) error) (again bool, err error) {
	defer func() {
		if !q.keeps(conn) {
			conn.Release()
		}
	}()
	defer func() { // this also runs when fn panics or calls Goexit; after COMMIT it does nothing
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
	if len(answers) > 0 {
		s.repeats.count(len(c.Inserted) == 0)
	}
	return false, s.handle(ctx, c, q, answers, fn)
}

// handle runs fn in the transaction of the claim, and then commits that transaction.
func (s *Store) handle(ctx context.Context, c *claim, q *sequence, answers []dedup.Claim, fn func(tx pgx.Tx, answers []dedup.Claim) error) error {
	g := &guard{store: s, ctx: ctx, conn: c.conn, tx: c.tx, xid: c.xid, sessionState: c.sessionState, standbys: c.standbys, inserted: c.Inserted, shared: len(answers) > 1, latest: time.Now()}
	defer g.leave(ctx)
	tx := &guarded{Tx: c.tx, g: g}
	if c.tx == nil {
		g.begin = func(ctx context.Context) error { return g.open(ctx, c, tx) }
	}
	switch err := fn(tx, answers); {
	case g.returned():
		return g.lookBack(ctx, cmp.Or(err, errInUse))
	case err != nil:
		return g.lookBack(ctx, g.blame(err))
	}
	if err := g.finish(ctx); err != nil {
		return g.lookBack(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgxstore: not committed: %w", err)
	}
	late, wakes, begun := g.shut()
	if !begun { // fn has done nothing, and neither has the claim
		return nil
	}
	commit := func() error { return s.commit(ctx, c.tx, late, c.standbys) }
	if next := q.follow(ctx, c, g, late); next != nil {
		commit = func() error { return q.commit(ctx, next) }
	}
	if err := commit(); err != nil {
		if isIdle(err) { // the server had already ended the transaction
			return idleError(s.cfg.IdleInTxTimeout, err)
		}
		return err
	}
	for _, w := range wakes {
		w.store.wake(ctx, w.shards)
	}
	return nil
}

// commit writes what waits and commits the transaction.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, late lateWrites, standbys bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.endWithin)
	defer cancel()
	if standbys && !s.cfg.AllowAsyncCommit {
		if err := s.saveResults(ctx, tx, late.results); err != nil {
			return lostBefore(err)
		}
		if _, err := s.write(ctx, tx, late.messages); err != nil {
			return lostBefore(err)
		}
		return commitError(commitReplicated(ctx, tx.Conn().PgConn()))
	}
	if len(late.messages)+len(late.results) > 0 {
		return s.writeAndCommit(ctx, tx, late)
	}
	return commitError(tx.Commit(ctx))
}

func commitError(err error) error {
	if err != nil && !isDefinite(err) && !isIdle(err) {
		return database.Errorf("pgxstore: commit: %w: %w", errCommitUnknown, err)
	}
	return err
}

func rollback(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return // it was committed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	defer cutInUse(tx.Conn())
	_ = tx.Rollback(ctx) // if this fails, pgx closes the connection, which also rolls back
}

// cutInUse is deferred. pgx panics when a goroutine of the handler still uses the connection, which the handler may have got from Conn.
func cutInUse(conn *pgx.Conn) {
	if recover() != nil {
		_ = conn.PgConn().Conn().Close()
	}
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
	return s.stepError("forget", err)
}
