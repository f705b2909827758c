package pgxstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox"
)

var _ outbox.Queue = (*Store)(nil)

// Open implements outbox.Queue. It checks that the database does not lose commits and that the tables exist. The sessions of a Store use
// up to 5 connections besides those of Config.Pool, made with its configuration, and one for LISTEN. Hooks of the pool that run at each
// acquire or release do not run for them: set a role or a search_path in AfterConnect. Through a pooler the sessions use Config.Pool.
func (s *Store) Open(ctx context.Context, opts outbox.SessionOptions) (outbox.Session, error) {
	if opts.TTL < time.Millisecond {
		return nil, fmt.Errorf("pgxstore: SessionOptions.TTL %v is shorter than 1 ms", opts.TTL)
	}
	if err := s.checkPooler(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSettings(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	session := &outboxSession{store: s, owner: newOwner(), name: columns.Text(opts.Name), ttl: opts.TTL, held: map[int]*heldShard{}, notified: map[int]bool{}}
	session.marks.Warn = s.warnOfAnOlderState
	conns, leave, err := s.relayConns.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	session.conns.Store(conns)
	session.leaveConns = leave
	session.commits, session.stopWake = s.listen(ctx)
	return session, nil
}

// outboxSession is one relay's hold on its shards. The database decides who holds a shard. This struct only remembers where to
// look, and may be out of date.
type outboxSession struct {
	store    *Store
	owner    pgtype.UUID
	name     string
	ttl      time.Duration
	commits  *subscription
	stopWake func(context.Context)

	conns      atomic.Pointer[relayPool] // the relay's own connections; nil: those of Config.Pool
	leaveConns func(context.Context)

	renewing sync.Mutex // serializes Renew and Close
	shares   shares.Ledger

	mu        sync.Mutex
	begun     bool
	closed    bool               // Close was called, or the hold expired
	until     time.Time          // the end of the hold
	held      map[int]*heldShard // by number
	notified  map[int]bool       // held shards that got messages since they were last polled
	nextGroup int                // the group of shards that the next Lease with Want.Groups polls

	lastFound int // messages that the last Lease has returned

	marks watermark.Marks

	chores     sync.Mutex  // serializes doChores
	choresAt   time.Time   // when doChores last began; guarded by mu
	maintained time.Time   // when Maintain was last called
	dueLeft    atomic.Bool // the last moveDue may have left delayed messages that are due

	tidied   int       // counts the shards that Maintain has searched for followers
	rescueAt time.Time // when Maintain next finishes an Unpark or Discard that crashed
}

var (
	_ outbox.Session    = (*outboxSession)(nil)
	_ outbox.Waker      = (*outboxSession)(nil)
	_ outbox.Maintainer = (*outboxSession)(nil)
)

// newOwner returns a random number that identifies the session.
func newOwner() pgtype.UUID {
	var n [16]byte
	rand.Read(n[:]) // never fails
	return pgUUID(n)
}

// heldShard is a shard that the session holds, as far as it knows.
type heldShard struct {
	token    int64
	busy     bool               // a poll or Maintain works on it, so that no other Lease may
	leaving  bool               // another session waits for it, so Lease ignores it
	leased   map[int64]struct{} // by seq
	scan     int64              // how many of its rows the next Lease scans
	cooldown time.Time          // Lease ignores the shard until then, because the last poll scanned very many rows
}

// idle reports whether nothing of the shard is leased or being read.
func (sh *heldShard) idle() bool { return !sh.busy && len(sh.leased) == 0 }

// Wake implements outbox.Waker.
func (s *outboxSession) Wake() <-chan struct{} { return s.commits.wake }

// Close implements outbox.Session. Connections that ctx leaves no time to close are closed in the background.
func (s *outboxSession) Close(ctx context.Context) error {
	s.stopWake(ctx)
	s.renewing.Lock()
	defer s.renewing.Unlock()
	defer func() {
		s.conns.Store(nil)
		s.leaveConns(ctx)
	}()
	s.mu.Lock()
	begun := s.begun
	s.closed = true
	clear(s.held)
	s.mu.Unlock()
	s.store.holdsAllUntil(time.Time{})
	if !begun {
		return nil
	}
	return s.holdTx(ctx, "close", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.End, s.owner)
		b.Queue(s.store.outbox.GiveBackAll, s.owner)
	})
}

// leasable marks as busy, and returns, the shards that the next Lease may poll: those of the current group that are not busy
// and have no leased messages. done ends the marking.
func (s *outboxSession) leasable(want outbox.Want) (shards []int, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits.take(s.notified, s.held)
	parts, everywhere := max(want.Groups, 1), !want.Notified
	group := s.nextGroup % parts
	s.nextGroup = group + 1
	now := time.Now()
	for i, n := range s.numbers() {
		if sh := s.held[n]; i%parts == group && (everywhere || s.notified[n]) && !sh.leaving && sh.idle() && !now.Before(sh.cooldown) {
			sh.busy = true
			delete(s.notified, n)
			shards = append(shards, n)
		}
	}
	return shards, func() { s.free(shards) }
}

func (s *outboxSession) free(shards []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range shards {
		if sh := s.held[n]; sh != nil {
			sh.busy = false
		}
	}
}

func (s *Store) warnOfAnOlderState(ctx context.Context, args ...any) {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database was set back to an older state, "+
		"for example by an asynchronous failover; the new messages are published, messages whose commits were lost are not", args...)
}

// numbers returns the numbers of the held shards in order. The caller holds mu.
func (s *outboxSession) numbers() []int {
	numbers := make([]int, 0, len(s.held))
	for n := range s.held {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// tokens returns the numbers and tokens of shards as arrays for a statement. The tokens may be out of date.
func (s *outboxSession) tokens(shards []int) (numbers []int16, tokens []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range shards {
		if sh := s.held[n]; sh != nil {
			numbers, tokens = append(numbers, int16(n)), append(tokens, sh.token)
		}
	}
	return numbers, tokens
}

// tx sends the statements that queue adds to the database, as outboxTx does, on a connection of the relay where there is one.
func (s *outboxSession) tx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	if conns := s.conns.Load(); conns != nil {
		done, err := conns.work(ctx)
		if err != nil {
			return database.Errorf("pgxstore: outbox: %s: wait for a connection: %w", operation, err)
		}
		defer done()
	}
	return s.holdTx(ctx, operation, queue)
}

// holdTx is tx for statements that take, keep or give back shards. They do not wait for those that lease and settle messages.
func (s *outboxSession) holdTx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	conns := s.conns.Load()
	if conns == nil {
		return s.store.outboxTx(ctx, operation, queue)
	}
	b := &pgx.Batch{}
	queue(b)
	if b.Len() > 1 { // a statement alone is a transaction
		all := &pgx.Batch{}
		all.Queue(beginOutbox)
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		all.Queue(`COMMIT`)
		b = all
	}
	return s.store.sendOutbox(ctx, conns.pool, operation, b)
}

const beginOutbox = `BEGIN ISOLATION LEVEL READ COMMITTED`

// outboxTx sends the statements that queue adds, as one transaction in one round trip, so that a process that freezes leaves no
// transaction open. It uses a connection of the application, so the relay's settings last for this transaction only.
func (s *Store) outboxTx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue(beginOutbox)
	b.Queue(s.outbox.Settings)
	queue(b)
	b.Queue(`COMMIT`)
	return s.sendOutbox(ctx, s.cfg.Pool, operation, b)
}

func (s *Store) sendOutbox(ctx context.Context, pool *pgxpool.Pool, operation string, b *pgx.Batch) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return database.Errorf("pgxstore: outbox: %s: connect: %w", operation, err)
	}
	defer conn.Release()
	err = conn.SendBatch(ctx, b).Close()
	if conn.Conn().IsClosed() && pool != s.cfg.Pool {
		pool.Reset() // after a failover the others are lost too, and each could take as long to fail as a Renew may last
	}
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // otherwise the pool would close the connection
	}
	return s.outboxError(operation, err)
}

// outboxError classifies an error of the relay's statements, which no message can cause.
func (s *Store) outboxError(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outbox.ErrLeaseLost):
		return err
	case isUndefined(err):
		return database.Errorf("%w: outbox: %s: %w; %s", dedup.ErrSchema, operation, err, howToMigrate)
	}
	return database.Errorf("pgxstore: outbox: %s: %w", operation, err)
}
