package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/outbox"
)

// walSession is one relay's hold on the slot and, through a session of the tables, on all shards. One of all sessions has
// that; the others stand by, and hold nothing. What cannot be published in its turn spills to the tables, where it is a
// message like any other.
//
// Who holds the slot is said by txonce_slots, and whether he is alive by his row in txonce_relays, as it is for shards. His
// connection to the server proves nothing: a process may be frozen, and the server keep its walsender.
type walSession struct {
	store  *Store
	tables *session
	window *walWindow

	background context.Context // of what runs until Close
	stop       context.CancelFunc
	running    sync.WaitGroup

	renewing sync.Mutex // one Renew or Close at a time
	token    int64      // of the slot; 0: standing by
	started  atomic.Bool

	settling sync.Mutex    // one at a time changes what follows
	recorded pglogrepl.LSN // how far the slot may be told, as txonce_slot_confirmed says

	told atomic.Uint64 // an LSN: how far it is told

	mu     sync.Mutex
	stream *walStream
	failed error // why there is no stream
	since  time.Time

	lastFailed  time.Time
	lastFailure error

	looked time.Time
	turn   bool
}

var (
	_ outbox.Session = (*walSession)(nil)
	_ outbox.Waker   = (*walSession)(nil)
	_ outbox.Tidier  = (*walSession)(nil)
)

func (s *Store) openWAL(ctx context.Context, opts outbox.SessionOptions) (outbox.Session, error) {
	state, err := s.slotState(ctx, s.cfg.Pool, pgtype.UUID{})
	if err != nil {
		return nil, err
	}
	if err := state.unusable(); err != nil {
		return nil, err
	}
	shards, err := s.shardsIn(ctx, s.cfg.Pool)
	if err != nil {
		return nil, err
	}
	tables := &session{store: s, owner: newOwner(), name: text(opts.Name), ttl: opts.TTL, held: map[int]*shard{}, told: map[int]bool{}, stopWake: func() {}}
	w := &walSession{
		store: s, tables: tables,
		window: newWALWindow(shards, s.cfg.Outbox.WALMessages, s.cfg.Outbox.WALBytes),
	}
	w.background, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	return w, nil
}

// unusable is problem for relays, which may read a slot that is in danger: that is what helps it.
func (st *slotState) unusable() error {
	if st.reason == "unreserved" {
		return nil
	}
	return st.problem()
}

// Wake implements outbox.Waker.
func (s *walSession) Wake() <-chan struct{} { return s.window.wake }

// Renew implements outbox.Session.
func (s *walSession) Renew(ctx context.Context) (outbox.Hold, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	asked := time.Now()
	if s.token == 0 {
		elected, err := s.elect(ctx)
		if err != nil {
			return outbox.Hold{}, err
		}
		if !elected {
			return s.standBy(ctx, asked)
		}
	}
	hold, err := s.tables.Renew(ctx)
	if err != nil {
		return hold, err
	}
	state, err := s.store.slotState(ctx, s.store.cfg.Pool, s.tables.owner)
	switch {
	case err != nil:
		return hold, err
	case state.slot == "" || !state.mine || state.token != s.token:
		s.tables.lost()
		return hold, fmt.Errorf("%w: the slot has gone to another relay", outbox.ErrLeaseLost)
	}
	if err := state.unusable(); err != nil {
		return hold, err
	}
	if !s.started.Load() {
		if err := s.start(ctx, state); err != nil {
			return hold, err
		}
	}
	return hold, s.streamError()
}

// elect takes the slot where nobody living has it.
func (s *walSession) elect(ctx context.Context) (bool, error) {
	state, err := s.store.slotState(ctx, s.store.cfg.Pool, s.tables.owner)
	if err != nil {
		return false, err
	}
	if err := state.unusable(); err != nil {
		return false, err
	}
	var token int64
	err = s.store.outboxTx(ctx, "take the slot", func(b *pgx.Batch) {
		b.Queue(s.store.wal.Lock)
		b.Queue(s.store.outbox.DropExpired)
		b.Queue(s.store.wal.Elect, s.tables.owner, s.tables.name, s.tables.ttl.Seconds()).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&token); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
	})
	s.token = token
	return token != 0, err
}

// standBy says what a session holds that does not hold the slot: nothing. The relay then calls again within a second.
func (s *walSession) standBy(ctx context.Context, asked time.Time) (outbox.Hold, error) {
	hold := outbox.Hold{Until: asked.Add(s.tables.ttl), Of: len(s.window.queues)}
	err := s.store.cfg.Pool.QueryRow(ctx, s.store.wal.Others, s.tables.name).Scan(&hold.Relays, &hold.Namesakes)
	hold.Relays++ // this one
	return hold, s.store.outboxError("stand by", err)
}

// Close implements outbox.Session.
func (s *walSession) Close(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if stream != nil {
		stream.cut()
	}
	s.running.Wait()
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if s.token == 0 {
		return nil
	}
	s.tables.mu.Lock()
	s.tables.begun = true // the election has written its row
	s.tables.mu.Unlock()
	_, err := s.store.cfg.Pool.Exec(ctx, s.store.wal.Leave, s.tables.owner)
	return errors.Join(s.store.outboxError("close", err), s.tables.Close(ctx))
}

// streamError is why there is no stream, if that has lasted.
func (s *walSession) streamError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil && time.Since(s.since) > 2*time.Second {
		return s.failed
	}
	return nil
}

// failedSince is why nothing has come since t: also where a stream is there again, since it may break whenever it comes to the same
// place.
func (s *walSession) failedSince(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && s.lastFailed.Before(t) {
		return nil
	}
	return s.lastFailure
}

const tablesEvery = 250 * time.Millisecond // how often tables are looked at of which nothing is known

// Lease implements outbox.Session.
func (s *walSession) Lease(ctx context.Context, want outbox.Want) ([]outbox.Leased, error) {
	if want.Limit <= 0 || want.Bytes < 0 {
		return nil, fmt.Errorf("pgxstore: outbox: lease: Want.Limit %d, Bytes %d: want at least 1, 0", want.Limit, want.Bytes)
	}
	if s.tables.ranOut() {
		return nil, outbox.ErrLeaseLost
	}
	if !s.started.Load() {
		return nil, nil
	}
	if err := s.spill(ctx); err != nil {
		return nil, err
	}
	looked := s.tablesTurn()
	if looked {
		if msgs, err := s.tables.Lease(ctx, want); err != nil || len(msgs) > 0 {
			return msgs, err
		}
	}
	if msgs := s.window.lease(want, s.held()); len(msgs) > 0 {
		return msgs, nil
	}
	if !looked && !want.Woken { // wake-ups are about the window
		if msgs, err := s.tables.Lease(ctx, want); err != nil || len(msgs) > 0 {
			return msgs, err
		}
	}
	return s.awaitStream(ctx, want)
}

// tablesTurn reports whether to look at the tables first: every other time while there is something in them.
func (s *walSession) tablesTurn() bool {
	busy := s.window.anyBusy()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = !s.turn
	if s.turn && busy || time.Since(s.looked) > tablesEvery {
		s.looked = time.Now()
		return true
	}
	return false
}

// held are the shards of the tables' session with their tokens.
func (s *walSession) held() map[int]int64 {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	held := make(map[int]int64, len(s.tables.held))
	for n, sh := range s.tables.held {
		held[n] = sh.token
	}
	return held
}

// catchUp bounds how long a Lease waits for the stream to bring what is committed.
const catchUp = 3 * time.Second

// awaitStream waits until the stream has brought what was committed before the call, so that nil means that nothing is due.
func (s *walSession) awaitStream(ctx context.Context, want outbox.Want) ([]outbox.Leased, error) {
	asked := time.Now()
	var flushed pglogrepl.LSN
	if err := s.store.cfg.Pool.QueryRow(ctx, s.store.wal.Flushed).Scan(&flushed); err != nil {
		return nil, s.store.outboxError("lease", err)
	}
	timer := time.NewTimer(catchUp)
	defer timer.Stop()
	for {
		received, more := s.window.received()
		if msgs := s.window.lease(want, s.held()); len(msgs) > 0 || received >= flushed {
			return msgs, nil
		}
		select {
		case <-more:
		case <-timer.C:
			return nil, s.failedSince(asked)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Tidy implements outbox.Tidier.
func (s *walSession) Tidy(ctx context.Context) error {
	if !s.started.Load() {
		return nil
	}
	if err := s.spill(ctx); err != nil {
		return err
	}
	s.settling.Lock()
	recorded := s.recorded
	err := s.lookAtKeys(ctx, false)
	s.settling.Unlock()
	if err != nil {
		return err
	}
	if _, err := s.store.cfg.Pool.Exec(ctx, s.store.wal.Forget, recorded.String()); err != nil {
		return s.store.outboxError("tidy", err)
	}
	return s.tables.Tidy(ctx)
}
