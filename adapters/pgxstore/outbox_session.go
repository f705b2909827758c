package pgxstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox/driver"
)

var _ driver.Queue = (*Store)(nil)

// Open implements driver.Queue. It checks that the database does not lose commits and that the tables exist. The sessions of a Store use
// up to 5 connections besides those of Config.Pool, made with its configuration, and one for LISTEN. Hooks of the pool that run at each
// acquire or release do not run for them: set a role or a search_path in AfterConnect. Through a pooler the sessions use Config.Pool.
func (s *Store) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
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
	if err := claims.NumbersAtStart(ctx, s.checkNumbers); err != nil {
		return nil, err
	}
	session := &outboxSession{store: s, owner: newOwner(), name: columns.Text(opts.Name), ttl: opts.TTL, held: shares.Held{}, scans: map[shardHold]shardScan{}, notified: map[int]bool{}}
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

// outboxSession is one relay's hold on its shards. The database decides which session holds a shard. This struct remembers the last answer,
// and may be out of date.
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
	closed    bool      // Close was called, or the hold expired
	until     time.Time // the end of the hold
	held      shares.Held
	scans     map[shardHold]shardScan // of shards where a Lease scanned more rows than scanFirst
	notified  map[int]bool            // held shards that got messages since they were last polled
	nextGroup int                     // the group of shards that the next Lease with Want.Groups polls

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
	_ driver.Session    = (*outboxSession)(nil)
	_ driver.Waker      = (*outboxSession)(nil)
	_ driver.Maintainer = (*outboxSession)(nil)
)

// newOwner returns a random number that identifies the session.
func newOwner() pgtype.UUID {
	var n [16]byte
	rand.Read(n[:]) // never fails
	return pgUUID(n)
}

// shardHold is one hold of a shard: when another session takes the shard, its token changes.
type shardHold struct {
	shard int
	token int64
}

// shardScan is how the next Lease reads a shard.
type shardScan struct {
	rows     int64     // how many rows it scans
	cooldown time.Time // it ignores the shard until then, because the last poll scanned very many rows
}

// Wake implements driver.Waker.
func (s *outboxSession) Wake() <-chan struct{} { return s.commits.wake }

// Close implements driver.Session. Connections that ctx leaves no time to close are closed in the background.
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
	return pgrelay.End(ctx, inBatch(s.holdTx), &s.store.outbox, s.owner)
}

// leasable marks as busy, and returns, the shards that the next Lease may poll: those of the current group that are not busy
// and have no leased messages. done ends the marking.
func (s *outboxSession) leasable(want driver.Want) (shards []int, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits.take(s.notified, s.held)
	parts, everywhere := max(want.Groups, 1), !want.Notified
	group := s.nextGroup % parts
	if parts > 1 {
		s.nextGroup = group + 1
	}
	now := time.Now()
	for i, n := range s.held.Numbers() {
		sh := s.held[n]
		if cooldown := s.scans[shardHold{n, sh.Token}].cooldown; i%parts == group && (everywhere || s.notified[n]) && !sh.Leaving && sh.Idle() && !now.Before(cooldown) {
			delete(s.notified, n)
			shards = append(shards, n)
		}
	}
	borrowed := s.held.Borrow(shards)
	return shards, func() { s.free(borrowed) }
}

// borrow marks as busy, and returns, those of shards that are idle. done ends the marking.
func (s *outboxSession) borrow(shards []int) (borrowed []int, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Borrow(shards)
	return held.Numbers(), func() { s.free(held) }
}

func (s *outboxSession) free(borrowed shares.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	borrowed.Free()
}

func (s *Store) warnOfAnOlderState(ctx context.Context, args ...any) {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database was set back to an older state, "+
		"for example by an asynchronous failover; the new messages are published, messages whose commits were lost are not", args...)
}

// tokens returns the numbers and tokens of shards as arrays for a statement. The tokens may be out of date.
func (s *outboxSession) tokens(shards []int) (numbers []int16, tokens []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range shards {
		if sh := s.held[n]; sh != nil {
			numbers, tokens = append(numbers, int16(n)), append(tokens, sh.Token)
		}
	}
	return numbers, tokens
}
