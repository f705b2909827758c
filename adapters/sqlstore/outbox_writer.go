package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
)

// OutboxConfig is for messages that are to be published.
type OutboxConfig struct {
	// KeepSent is how long messages stay in outbox_sent once they are confirmed. Defaults to 0: they are deleted at once.
	KeepSent time.Duration
}

var (
	_ outbox.Writer[*sql.Tx] = (*Store)(nil)
	_ outbox.Queue           = (*Store)(nil)
	_ outbox.Waker           = (*outboxSession)(nil)
	_ outbox.Maintainer      = (*outboxSession)(nil)
)

// Enqueue implements outbox.Writer. All of msgs are written at once, and get their numbers in the order of Enqueue. Where
// transactions may pass each other between Enqueue and COMMIT, numbers of one key may come in another order than their
// commits. So enqueue at the end of the handler, after the rows that such transactions exclude each other by are locked, or
// call LockOrderingKey first. On SQLite no writer passes another.
//
// In a transaction of the caller's own, relays of this process learn of its COMMIT by Wake, or by their polling.
func (s *Store) Enqueue(ctx context.Context, tx *sql.Tx, msgs ...outbox.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready, done, err := outbox.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	if err := s.db.Outbox.Writer.Enqueue(ctx, tx, ready); err != nil {
		return s.statementError(err)
	}
	s.outbox.enqueued(tx)
	return nil
}

// LockOrderingKey lets transactions that call it with the same key follow one another from here until they end, so that the order of
// what they enqueue is the order of their commits. Call it before reading what decides about messages. On SQLite it
// makes tx the one transaction that writes, whatever the key.
func (s *Store) LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	return s.statementError(s.db.Outbox.Writer.LockOrderingKey(ctx, tx, key))
}

// Wake tells relays that a transaction of the caller's own, in which it has called Enqueue, is committed: those on this Store at
// once, and on PostgreSQL those of adapters/pgxstore elsewhere. All others find the messages when they next look. InTx does
// it by itself. It returns at once; what it starts ends some milliseconds after the last call. ctx gives it values, no limit.
func (s *Store) Wake(ctx context.Context) {
	s.outbox.wake()
	if s.location.found.Load() { // else it has enqueued nothing
		s.db.Outbox.Writer.Notify(ctx)
	}
}

// outboxHub knows who is to be told of what was enqueued.
type outboxHub struct {
	mu       sync.Mutex
	open     map[*sql.Tx]bool // transactions of InTx, and whether they have enqueued anything
	sessions map[*outboxSession]struct{}
}

func (h *outboxHub) watch(tx *sql.Tx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = make(map[*sql.Tx]bool)
	}
	h.open[tx] = false
}

func (h *outboxHub) forget(tx *sql.Tx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, tx)
}

// enqueued notes it for a transaction of InTx.
func (h *outboxHub) enqueued(tx *sql.Tx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, watched := h.open[tx]; watched {
		h.open[tx] = true
	}
}

// has reports whether a transaction of InTx has enqueued anything.
func (h *outboxHub) has(tx *sql.Tx) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[tx]
}

func (h *outboxHub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (h *outboxHub) join(s *outboxSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions == nil {
		h.sessions = make(map[*outboxSession]struct{})
	}
	h.sessions[s] = struct{}{}
}

func (h *outboxHub) part(s *outboxSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
}
