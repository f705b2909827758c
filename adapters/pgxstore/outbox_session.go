package pgxstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
)

var _ outbox.Queue = (*Store)(nil)

// Open implements outbox.Queue. It checks that the database keeps commits and has the tables.
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
	session.commits, session.stopWake = s.listen(ctx)
	return session, nil
}

// session is one relay's hold. What the database says counts; what is remembered here only says where to look.
type outboxSession struct {
	store    *Store
	owner    pgtype.UUID
	name     string
	ttl      time.Duration
	commits  *subscription
	stopWake func()

	renewing sync.Mutex // one Renew or Close at a time
	shares   shares.Ledger

	mu        sync.Mutex
	begun     bool
	closed    bool               // closed, or lost
	until     time.Time          // of the hold
	held      map[int]*heldShard // by number
	notified  map[int]bool       // of these, those that were not looked at since a commit has put messages into them
	nextGroup int                // of the next Lease with Parts
	dueAt     time.Time          // when Lease looks again for messages that have become due

	watermark        watermark
	checked          int       // marks that Maintain has checked
	watermarkCheckAt time.Time // no check before

	polling bool // a Lease does what one at a time does

	tidied   int       // shards that Maintain went through for followers
	rescueAt time.Time // when Maintain looks again for what a dead Unpark left
}

var (
	_ outbox.Session    = (*outboxSession)(nil)
	_ outbox.Waker      = (*outboxSession)(nil)
	_ outbox.Maintainer = (*outboxSession)(nil)
)

// newOwner returns a number that no other session has.
func newOwner() pgtype.UUID {
	var n [16]byte
	rand.Read(n[:]) // never fails
	return pgUUID(n)
}

// shard is one that the session holds, as far as it knows.
type heldShard struct {
	token    int64
	busy     bool               // something is being done to it that a Lease must not come across
	leaving  bool               // others wait for it: no Lease looks at it
	leased   map[int64]struct{} // seqs
	look     int64              // how many of its rows the next Lease looks at
	low      int64              // none of its rows has a smaller seq, unless something came back
	returned int64              // how often something had come back then
	cooldown time.Time          // until then no Lease looks at it: the last one had to look at very many rows
}

// Wake implements outbox.Waker.
func (s *outboxSession) Wake() <-chan struct{} { return s.commits.wake }

// Close implements outbox.Session.
func (s *outboxSession) Close(ctx context.Context) error {
	s.stopWake()
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	begun := s.begun
	s.closed = true
	clear(s.held)
	s.mu.Unlock()
	s.store.holdsAllUntil(time.Time{})
	if !begun {
		return nil
	}
	return s.store.outboxTx(ctx, "close", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.End, s.owner)
		b.Queue(s.store.outbox.GiveBackAll, s.owner)
	})
}

// idle lists the shards in turn that nothing is done to and of which nothing is leased, and marks them busy; done ends that.
func (s *outboxSession) leasable(want outbox.Want) (shards []int, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits.take(s.notified, s.held)
	parts, everywhere := max(want.Groups, 1), !want.Notified
	group := s.nextGroup % parts
	s.nextGroup = group + 1
	now := time.Now()
	for i, n := range s.numbers() {
		if sh := s.held[n]; i%parts == group && (everywhere || s.notified[n]) && !sh.leaving && !sh.busy && len(sh.leased) == 0 && !now.Before(sh.cooldown) {
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

// numbers lists the held shards in order. The caller holds mu.
func (s *outboxSession) numbers() []int {
	numbers := make([]int, 0, len(s.held))
	for n := range s.held {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// tokens returns what the session believes to be the tokens of shards, as the server takes both.
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

// outboxTx sends what queue adds, as one transaction, in one round trip: a process that freezes leaves none open.
func (s *Store) outboxTx(ctx context.Context, operation string, queue func(*pgx.Batch)) error {
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return claims.DatabaseErrorf("pgxstore: outbox: %s: connect: %w", operation, err)
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
	b.Queue(s.outbox.Settings)
	queue(b)
	b.Queue(`COMMIT`)
	err = conn.SendBatch(ctx, b).Close()
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // the pool closes a connection that is left within a transaction
	}
	return s.outboxError(operation, err)
}

// outboxError classifies an error of the relay's side: no message has a part in it.
func (s *Store) outboxError(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outbox.ErrLeaseLost):
		return err
	case isUndefined(err):
		return claims.DatabaseErrorf("%w: outbox: %s: %w; %s", dedup.ErrSchema, operation, err, howToMigrate)
	}
	return claims.DatabaseErrorf("pgxstore: outbox: %s: %w", operation, err)
}
