package pgxstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Interleave runs the handlers of a batch side by side in one transaction. Each has a goroutine and a branch, which is its pgx.Tx. A branch
// does not use the connection. It hands a statement to the goroutine of Interleave, which waits until all handlers that run wait for
// something, sends all statements that wait as one pipeline, and hands out the results.
//
// A handler gets the transaction for itself, before its first statement that needs that, and keeps it until it returns: it has its turn.
// A turn begins when all handlers of earlier messages have returned. So turns follow the order of the messages, and what a handler does
// in its turn finds everything as if the handlers ran one after the other: the savepoints, and the order of the outbox messages.
//
// The first failure cancels all handlers (see fail), and nothing is committed. Interleave may have caused it, for example by a deadlock between
// handlers, so the consumer counts it as an attempt of no message. It runs the messages again without Interleave, and counts what fails then.

// patience is how long Interleave waits. Tests change it.
type patience struct {
	// lingers is for handlers that do something else, before Interleave sends the statements of the others. Those handlers may be waiting for
	// one of the others, for example for a mutex.
	lingers time.Duration
	// stallsAfter is for a turn while nothing happens. A handler that has its turn, or another one before it, may be waiting for one of those
	// that wait for theirs, for example for a mutex.
	stallsAfter time.Duration
}

// maxPassed is how many pipelines Interleave sends before a handler that waits for its turn gets it. Statements usually go first, because a
// later handler may hold a mutex that the turn needs. But a handler may send statements without end, for example until it sees the
// effect of the handler that waits.
const maxPassed = 100

var (
	errStalled = errors.New("pgxstore: handlers in one transaction wait, and nothing happened for a while: " +
		"a handler that has the transaction for itself, or one before it, does something else, or waits for another handler")
	errGoexit   = errors.New("pgxstore: the handler ended its goroutine instead of returning: it called runtime.Goexit, or FailNow of a test")
	errPanicked = errors.New("pgxstore: code of the user panicked while a statement was sent")
	errTwice    = errors.New("pgxstore: conn busy: the handler uses its transaction while rows or a batch are open, or in two goroutines at once")
	errRecall   = errors.New("pgxstore: currval and lastval return what another handler in the same transaction may have caused: use RETURNING")
)

// interleaving is one call of Interleave.
type interleaving struct {
	tx     *guarded // used by the goroutine of Interleave, and by the handler that has its turn
	ctx    context.Context
	cancel context.CancelCauseFunc
	alone  bool          // each handler has the transaction for itself from its first statement on
	stuck  chan struct{} // closed when the goroutine of Interleave itself may wait for a handler, see stalled
	wake   chan struct{}
	timer  *time.Timer
	patience
	runs  int  // calls of run
	done  bool // run has returned
	moved int  // the outbox messages of the branches before this place are with the guard; used by the goroutine of Interleave

	mu       sync.Mutex
	branches []*branch
	low      int       // all handlers before this place have returned
	live     int       // chains of handlers that have not ended
	busy     int       // those whose handler does not wait for Interleave
	queue    []*branch // wait for the results of statements that are not sent
	turns    int       // branches that wait for their turn
	turn     *branch   // has its turn; nil: none
	passed   int       // pipelines sent since the branch at low began to wait for its turn
	moves    int       // counts everything that handlers do, to notice when nothing happens
	failed   int       // the place of the handler that failed first, or -1
	err      error     // its error; nil: none has failed
}

// Interleave implements driver.Interleaver. Above READ COMMITTED, where handlers may rely on the isolation of transactions in place of locks, and
// in the simple protocol, handlers run one after the other. A tracer of pgx sees one batch in place of the statements of several handlers.
// A pgtype.Codec of the application's own that the connection has registered must be safe for concurrent use.
func (s *Store) Interleave(ctx context.Context, tx pgx.Tx, keys []string, handlers []func(context.Context, pgx.Tx) error) (failed int, err error) {
	t, ok := tx.(*guarded)
	if !ok || t.nested {
		return -1, errors.New("pgxstore: interleaving: want the transaction that InTx gave to fn")
	}
	if err := t.g.ready(ctx); err != nil {
		return -1, err
	}
	f := &interleaving{tx: t, stuck: make(chan struct{}), wake: make(chan struct{}, 1), timer: time.NewTimer(s.patience.stallsAfter), patience: s.patience}
	defer f.timer.Stop()
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	f.alone = hidesText(t.g.c.conn) || s.cfg.Isolation != pgx.ReadCommitted || t.g.c.conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
	f.start(keys, handlers)
	defer f.run() // if code of the user panicked that ran on this goroutine, such as a tracer or driver.Valuer
	f.run()
	f.mu.Lock()
	failed, err = f.failed, f.err
	f.mu.Unlock()
	if err == nil {
		if err := f.move(ctx, len(f.branches)-1); err != nil {
			return -1, err
		}
	}
	return failed, err
}

// start starts a goroutine for each chain of handlers that run one after the other.
func (f *interleaving) start(keys []string, handlers []func(context.Context, pgx.Tx) error) {
	var chains [][]*branch
	byKey := map[string]int{}
	f.failed, f.branches = -1, make([]*branch, len(handlers))
	for i, handler := range handlers {
		b := &branch{f: f, place: i, handler: handler, answered: make(chan struct{}, 1)}
		f.branches[i] = b
		if at, ok := byKey[keys[i]]; ok {
			chains[at] = append(chains[at], b)
			continue
		}
		if keys[i] != "" {
			byKey[keys[i]] = len(chains)
		}
		chains = append(chains, []*branch{b})
	}
	f.live, f.busy = len(chains), len(chains)
	for _, chain := range chains {
		go f.chain(chain)
	}
}

// chain runs handlers one after the other.
func (f *interleaving) chain(chain []*branch) {
	var running *branch // after runtime.Goexit
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if running != nil {
			f.returned(running, errGoexit)
		}
		f.live--
		f.busy--
		f.nudge(true)
	}()
	for _, b := range chain {
		running = b
		err := b.handler(f.ctx, &branchTx{branch: b})
		if err == nil {
			err = b.batches.check()
		}
		running = nil
		f.mu.Lock()
		f.returned(b, err)
		failed := f.err != nil
		f.mu.Unlock()
		if failed {
			return
		}
	}
}
