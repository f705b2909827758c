package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/wakes"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// OutboxConfig configures the outbox.
type OutboxConfig struct {
	// KeepSent is how long published messages stay in outbox_sent.
	//
	// Defaults to 0: they are deleted at once.
	KeepSent time.Duration

	// Listen, on PostgreSQL, waits for notifications of commits in other processes, with the functions of your driver:
	// database/sql has none for it. It opens a connection, not through a pooler, executes statements on it one after
	// another, and from then on calls notified: once at once, and once for each notification that arrives. It returns
	// when ctx ends or the connection is lost. The Store calls it again after a pause of up to 30 s, while relays run.
	// The Store drops its error: log it here. It must return when ctx ends: the last relay of this Store to stop waits
	// for it. It must not panic, because that ends the process. With pgx:
	//
	//	func(ctx context.Context, statements []string, notified func()) error {
	//		conn, err := pgx.Connect(ctx, dsn)
	//		if err != nil {
	//			return err
	//		}
	//		defer conn.Close(context.WithoutCancel(ctx))
	//		for _, s := range statements {
	//			if _, err := conn.Exec(ctx, s); err != nil {
	//				return err
	//			}
	//		}
	//		for err == nil {
	//			notified()
	//			_, err = conn.WaitForNotification(ctx)
	//		}
	//		return err
	//	}
	//
	// With lib/pq, use a pq.ListenerConn: its ExecSimpleQuery executes the statements.
	//
	// Defaults to nil: relays learn at once of the commits of their own process, and find those of others by polling.
	Listen func(ctx context.Context, statements []string, notified func()) error
}

var (
	_ outbox.Writer[*sql.Tx] = (*Store)(nil)
	_ driver.Queue           = (*Store)(nil)
	_ driver.Waker           = (*outboxSession)(nil)
	_ driver.Maintainer      = (*outboxSession)(nil)
)

// Enqueue implements outbox.Writer. It writes msgs at once and numbers them in the order of the calls. If two
// transactions with the same key commit in another order than they enqueued, their messages are not in the order of the
// commits. So call Enqueue at the end of the handler, after locking the rows that both transactions lock, or call
// LockOrderingKey first. On SQLite only one transaction writes at a time, so the order is always that of the commits.
//
// In a transaction that the caller began, call Wake after COMMIT. Otherwise relays find the messages by polling.
func (s *Store) Enqueue(ctx context.Context, tx *sql.Tx, msgs ...outbox.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready, done, err := driver.Prepare(ctx, msgs)
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

// LockOrderingKey locks key until the transaction ends, so that transactions with the same key run one after another
// and their messages are in the order of their commits. Call it before you read the data that the messages depend on.
// On SQLite it makes tx the writing transaction, whatever the key.
func (s *Store) LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	return s.statementError(s.db.Outbox.Writer.LockOrderingKey(ctx, tx, key))
}

// Wake tells relays that a transaction that the caller began has committed, after it called Enqueue. It wakes relays on
// this Store at once, and on PostgreSQL also those in other processes that listen: all of adapters/pgxstore, and those
// with OutboxConfig.Listen. All other relays find the messages at their next poll. InTx calls Wake itself.
//
// Wake returns at once. Its background work ends some milliseconds after the last call. It uses the values of ctx, but
// not its deadline or cancellation.
func (s *Store) Wake(ctx context.Context) {
	s.outbox.wakes.Wake(nil)
	if s.location.found.Load() { // otherwise this Store has enqueued nothing
		s.db.Outbox.Writer.Notify(ctx)
	}
}

// outboxHub wakes the sessions after a transaction that enqueued messages.
type outboxHub struct {
	wakes wakes.Broadcaster

	mu   sync.Mutex
	open map[*sql.Tx]bool // transactions of InTx, and whether they have enqueued anything

	listening sync.Mutex // serializes the start and the end of listener
	sessions  int
	listener  *listener // runs while there are sessions; nil: none, or Config.Outbox.Listen is nil
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

// enqueued records that tx, if it is a transaction of InTx, has enqueued messages.
func (h *outboxHub) enqueued(tx *sql.Tx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, watched := h.open[tx]; watched {
		h.open[tx] = true
	}
}

// has reports whether tx, a transaction of InTx, has enqueued messages.
func (h *outboxHub) has(tx *sql.Tx) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[tx]
}
