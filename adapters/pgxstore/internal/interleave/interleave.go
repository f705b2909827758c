// Package interleave runs the handlers of a batch at the same time in one transaction of pgx. The long explanation for
// users is in docs/performance.md.
//
// Each handler has a goroutine and a pgx.Tx of its own, Tx, which does not use the connection. It hands a statement to
// the goroutine of Run, which waits until all handlers that run wait for something, sends all statements that wait as
// one pipeline, and hands out the results.
//
// A handler gets the transaction for itself, before its first statement that needs that, and keeps it until it returns.
// It gets it when all handlers of earlier messages have returned. So it finds everything as if the handlers ran one
// after the other: the savepoints, and the order of the outbox messages.
//
// The first failure cancels all handlers (see fail), and nothing is committed. Run may have caused it, for example by a
// deadlock between handlers, so the consumer counts it as an attempt of no message. It runs the messages again without
// Interleave, and counts what fails then.
//
// What the package needs of the transaction is a Guard. What its user needs of a handler's transaction are the methods
// of Tx that pgx.Tx has not.
package interleave

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Patience is how long Run waits. Zero fields get defaults.
type Patience struct {
	// Lingers is for handlers that do something else, before Run sends the statements of the others. Those handlers may
	// be waiting for one of the others, for example for a mutex. Defaults to 1 ms.
	Lingers time.Duration
	// StallsAfter is for handlers that wait to have the transaction for themselves, while nothing happens. The handler
	// that has it, or another one before it, may be waiting for one of them, for example for a mutex. Defaults to 1 s.
	StallsAfter time.Duration
}

// maxPassed is how many pipelines Run sends before a handler that waits gets the transaction for itself. Statements
// usually go first, because a later handler may hold a mutex that the one that waits needs. But a handler may send
// statements without end, for example until it sees the effect of the handler that waits.
const maxPassed = 100

var (
	errStalled = errors.New("pgxstore: handlers in one transaction wait, and nothing happened for a while: " +
		"a handler that has the transaction for itself, or one before it, does something else, or waits for another handler")
	errGoexit = errors.New("pgxstore: the handler ended its goroutine instead of returning: " +
		"it called runtime.Goexit, or FailNow of a test")
	errPanicked = errors.New("pgxstore: code of the user panicked while a statement was sent")
	errTwice    = errors.New("pgxstore: conn busy: the handler uses its transaction while rows or a batch are open, " +
		"or in two goroutines at once")
	errRecall = errors.New("pgxstore: currval and lastval return what another handler in the same transaction may have " +
		"caused: use RETURNING")
)

// Guard is the transaction as Run sees it.
type Guard interface {
	// Ready prepares the transaction for Send, and returns an error if the transaction has ended.
	Ready(ctx context.Context) error
	// Send sends statements of several handlers, whose text Run has checked.
	Send(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	// Verify checks that the transaction is still the one of the claim: before a handler gets it for itself, so that
	// what goes wrong later is the fault of this handler, and after that handler has returned.
	Verify(ctx context.Context) error
	// Enqueues reports whether sql writes outbox messages.
	Enqueues(sql string) bool
}

// Config says how Run uses a transaction.
type Config struct {
	Tx    pgx.Tx // used by the goroutine of Run, and by the handler that has the transaction for itself
	Guard Guard
	Alone bool // each handler has the transaction for itself from its first statement on
	Patience
}

// interleaving is one call of Run.
type interleaving struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	stuck  chan struct{} // closed when the goroutine of Run itself may wait for a handler, see stalled
	wake   chan struct{}
	timer  *time.Timer
	rounds int  // calls of run
	done   bool // run has returned
	moved  int  // the late work of the handlers before this place is done; used by the goroutine of Run

	mu       sync.Mutex
	handlers []*handler
	low      int // all handlers before this place have returned
	state
	failed int   // the place of the handler that failed first, or -1
	err    error // its error; nil: none has failed
}

// state is what the handlers do now.
type state struct {
	live    int        // chains of handlers that have not ended
	busy    int        // those whose handler does not wait for Run
	queue   []*handler // wait for the results of statements that are not sent
	waiting int        // handlers that wait to have the transaction for themselves
	alone   *handler   // has the transaction for itself; nil: none
	passed  int        // pipelines sent since the handler at low began to wait for that
	moves   int        // counts everything that handlers do, to notice when nothing happens
}

// Run runs handlers in one transaction. Those with the same key, unless it is empty, run one after the other. failed is
// the place of the handler that failed with err, or -1 if it is not known or no handler has failed.
func Run(
	ctx context.Context, cfg Config, keys []string, handlers []func(context.Context, pgx.Tx) error,
) (failed int, err error) {
	cfg.Lingers, cfg.StallsAfter = cmp.Or(cfg.Lingers, time.Millisecond), cmp.Or(cfg.StallsAfter, time.Second)
	in := &interleaving{
		cfg: cfg, stuck: make(chan struct{}), wake: make(chan struct{}, 1), timer: time.NewTimer(cfg.StallsAfter),
	}
	defer in.timer.Stop()
	in.ctx, in.cancel = context.WithCancelCause(ctx)
	defer in.cancel(nil)
	in.start(keys, handlers)
	defer in.run() // if code of the user panicked that ran on this goroutine, such as a tracer or driver.Valuer
	in.run()
	in.mu.Lock()
	failed, err = in.failed, in.err
	in.mu.Unlock()
	if err == nil {
		if err := in.move(ctx, len(in.handlers)-1); err != nil {
			return -1, err
		}
	}
	return failed, err
}

// start starts a goroutine for each chain of handlers that run one after the other.
func (in *interleaving) start(keys []string, handlers []func(context.Context, pgx.Tx) error) {
	var chains [][]*handler
	byKey := map[string]int{}
	in.failed, in.handlers = -1, make([]*handler, len(handlers))
	for i, handle := range handlers {
		h := &handler{in: in, place: i, handle: handle, answered: make(chan struct{}, 1)}
		in.handlers[i] = h
		if at, ok := byKey[keys[i]]; ok {
			chains[at] = append(chains[at], h)
			continue
		}
		if keys[i] != "" {
			byKey[keys[i]] = len(chains)
		}
		chains = append(chains, []*handler{h})
	}
	in.live, in.busy = len(chains), len(chains)
	for _, chain := range chains {
		go in.chain(chain)
	}
}

// chain runs handlers one after the other.
func (in *interleaving) chain(chain []*handler) {
	var running *handler // after runtime.Goexit
	defer func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		if running != nil {
			in.returned(running, errGoexit)
		}
		in.live--
		in.busy--
		in.nudge(true)
	}()
	for _, h := range chain {
		running = h
		err := h.handle(in.ctx, &Tx{handler: h})
		if err == nil {
			err = h.batches.Check()
		}
		running = nil
		in.mu.Lock()
		in.returned(h, err)
		failed := in.err != nil
		in.mu.Unlock()
		if failed {
			return
		}
	}
}
