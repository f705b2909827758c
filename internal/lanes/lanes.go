// Package lanes hands what a broker has delivered to a consumer.Processor, several batches side by side.
//
// An adapter makes one Lanes per Run, adds deliveries as they come, and is told of each, exactly once, what to do with it:
//
//	l := lanes.New(ctx, lanes.Config{Processor: p, Concurrency: 4, Settle: s.settle, …})
//	for l.Context().Err() == nil {
//		n := l.Reserve(10)           // waits for room; a broker with a prefetch of its own needs no reservation
//		msgs, err := receive(l.Context(), n)
//		l.Add(deliveries(msgs)...)
//		l.Release(n)
//	}
//	return l.Drain()
//
// A batch is formed of what is already waiting: it never waits to be filled. Deliveries with a Key are in order. No two of
// a key are ever in work at once but in one batch, in the order in which they were added; and what was added behind a
// failure of its key never runs before it: it waits where the failure waits here (Config.Keep), and is given back where the
// failure was given back.
//
// Lanes starts no goroutine but one for each batch in work, and Drain waits for those.
package lanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
)

// What Settle is told of deliveries that were not handled.
var (
	// ErrLost says that the broker no longer considers the delivery ours, see Lanes.Lose: acknowledge nothing.
	ErrLost = errors.New("the broker has taken this delivery away")
	// ErrStopped is wrapped in a uncounted *consumer.RetryError: nothing was done, give it back.
	ErrStopped = errors.New("not handled any more: the subscriber stops")
	// ErrAbandoned is wrapped in a uncounted *consumer.RetryError: a handler goes on with it although its context is
	// cancelled. Of that handler and whoever gets the message next exactly one commits.
	ErrAbandoned = errors.New("a handler is still running although its context is cancelled")
)

// Config of Lanes.
type Config struct {
	// Processor handles the messages. As a consumer.BatchProcessor it gets batches. Required.
	Processor consumer.Processor

	// Concurrency is how many batches are in work at once, at the most. Defaults to 1.
	Concurrency int

	// MaxBatch is how many messages a BatchProcessor gets at once, at the most. Defaults to 1.
	MaxBatch int

	// MaxBatchBytes bounds the sum of Delivery.Size in a batch, unless the first alone is larger. Defaults to no bound.
	MaxBatchBytes int

	// Capacity is how many deliveries are reserved and unsettled, at the most, as Reserve sees to it. Defaults to no bound.
	Capacity int

	// Settle is told what became of a delivery, exactly once for each that was added: nil means acknowledge it; a
	// *consumer.RetryError that it was not handled and is to be delivered again; ErrLost that it is ours no longer; any
	// other error that it was rejected: it must stay with the broker, and Drain returns that error. Those of a key are
	// settled in order. Settle runs on the goroutine of the batch, of Add, Lose or Drain, several at a time; while it
	// blocks, the lane and the keys of that batch are blocked. Required.
	Settle func(d *Delivery, err error)

	// Flush is called after Settle, when nothing more follows at once, so that answers can be sent together. Defaults to nothing.
	Flush func()

	// Keep reports whether a delivery that is to be handled again waits for that here, and is not settled yet. Its
	// Message.Attempt is raised unless retry is uncounted. Keep must not call Lanes. Defaults to keeping none.
	Keep func(d *Delivery, retry *consumer.RetryError) bool

	// Grace is how long batches in work may take when Drain is called, before their contexts are cancelled, and Settling how
	// long they may take after that. Default to none and 5 seconds.
	Grace, Settling time.Duration

	// Logger gets one line when the grace period ends before a handler. Defaults to slog.Default().
	Logger *slog.Logger
}

// Delivery is one message as the broker delivered it.
type Delivery struct {
	Message *consumer.Message
	Key     string // ordering key; empty: free
	Size    int    // bytes, for Config.MaxBatchBytes
	Raw     any    // the adapter's own: a receipt handle, a delivery tag

	// Under Lanes.mu.
	number    uint64 // in the order of Add
	state     state
	batch     *batch // while in work
	lost      bool
	notBefore time.Time // zero: at once
	spins     int       // how often in a row it was to be handled again at once
}

type state uint8

const (
	unknown state = iota // never added, or settled
	waiting
	inWork
)

// Lanes hands deliveries to a Processor. It is safe for concurrent use.
type Lanes struct {
	cfg    Config
	ctx    context.Context // ends when nothing more is to be begun
	stop   context.CancelFunc
	work   context.Context // of the handlers
	cancel context.CancelFunc

	handlers sync.WaitGroup

	mu       sync.Mutex
	waiting  []*Delivery // by number
	running  map[*batch]struct{}
	busy     map[string]*batch // by ordering key
	numbers  uint64
	reserved int
	held     int           // added and not settled
	room     chan struct{} // closed when there may be some
	timer    *time.Timer   // wakes what is kept
	quiet    chan struct{} // closed when nothing is in work; nil: nobody waits for that
	err      error         // why it stopped, unless it was told to
}

// New returns Lanes that begin nothing more when ctx ends, or when a message was rejected. Handlers get the values of ctx,
// but not its end. Call Drain at the end.
func New(ctx context.Context, cfg Config) *Lanes {
	cfg.Concurrency, cfg.MaxBatch = max(cfg.Concurrency, 1), max(cfg.MaxBatch, 1)
	cfg.Settling = cmp.Or(cfg.Settling, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l := &Lanes{cfg: cfg, running: map[*batch]struct{}{}, busy: map[string]*batch{}, room: make(chan struct{})}
	if _, batches := cfg.Processor.(consumer.BatchProcessor); !batches {
		l.cfg.MaxBatch = 1
	}
	l.ctx, l.stop = context.WithCancel(ctx)
	l.work, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l
}

// Context ends when nothing more is to be taken in.
func (l *Lanes) Context() context.Context { return l.ctx }

// Fail ends Context. Drain will return err, if it is the first.
func (l *Lanes) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(err)
}

func (l *Lanes) fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.stop()
}

// Reserve waits until there is room for a delivery at least, and reserves room for up to n. It returns 0 when Context ends.
func (l *Lanes) Reserve(n int) int {
	for {
		l.mu.Lock()
		room := n
		if l.cfg.Capacity > 0 {
			room = min(n, l.cfg.Capacity-l.reserved-l.held)
		}
		if l.ctx.Err() == nil && room > 0 {
			l.reserved += room
			l.mu.Unlock()
			return room
		}
		changed := l.room
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.ctx.Done():
			return 0
		}
	}
}

// Release takes a reservation back, when what came has been added.
func (l *Lanes) Release(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= n
	l.roomChanged()
}

func (l *Lanes) roomChanged() {
	close(l.room)
	l.room = make(chan struct{})
}

// Add takes deliveries in. It never waits for a handler. What comes after the end of Context is given back.
func (l *Lanes) Add(ds ...*Delivery) {
	l.mu.Lock()
	for _, d := range ds {
		l.numbers++
		d.number, d.state = l.numbers, waiting
	}
	l.waiting = append(l.waiting, ds...)
	l.held += len(ds)
	if l.ctx.Err() == nil {
		l.dispatch()
		l.mu.Unlock()
		return
	}
	leave := settlements(l.takeOut(l.unreachable), stopped)
	l.mu.Unlock()
	l.settle(leave)
}

// Lose says that the broker no longer considers d ours. Its handler's context is cancelled, with ErrLost for a cause; others of
// the same batch are then handled once more. What waits here behind it is given back. After Settle it does nothing.
func (l *Lanes) Lose(d *Delivery) {
	l.mu.Lock()
	switch d.state {
	case unknown:
		l.mu.Unlock()
	case inWork: // its handler may go on for long: the broker may deliver nothing of the key while we have what is behind it
		d.lost = true
		d.batch.cancel(ErrLost)
		behind := l.behind(d)
		l.mu.Unlock()
		l.settle(settlements(behind, behindLost))
	case waiting:
		behind := l.behind(d)
		l.takeOut(func(w *Delivery) bool { return w == d })
		l.mu.Unlock()
		l.settle(append([]settlement{{d, ErrLost}}, settlements(behind, behindLost)...))
	}
}

// behind takes out what waits behind d.
func (l *Lanes) behind(d *Delivery) []*Delivery {
	return l.takeOut(func(w *Delivery) bool { return w != d && w.Key != "" && w.Key == d.Key && w.number > d.number })
}

var (
	stopped    = &consumer.RetryError{Err: ErrStopped, Uncounted: true}
	behindLost = &consumer.RetryError{Err: fmt.Errorf("held back behind an earlier message of its key: %w", ErrLost), Uncounted: true}
)

// unreachable reports whether nothing will be done about d once Context has ended: no batch in work has its key.
func (l *Lanes) unreachable(d *Delivery) bool { return d.Key == "" || l.busy[d.Key] == nil }

// takeOut removes what leaves from those that wait.
func (l *Lanes) takeOut(leaves func(*Delivery) bool) (out []*Delivery) {
	kept := l.waiting[:0]
	for _, d := range l.waiting {
		if leaves(d) {
			d.state = unknown
			out = append(out, d)
		} else {
			kept = append(kept, d)
		}
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
	return out
}

// settle reports what became of deliveries that Lanes has forgotten.
func (l *Lanes) settle(leave []settlement) {
	for _, s := range leave {
		l.cfg.Settle(s.d, s.err)
	}
	if len(leave) == 0 {
		return
	}
	if l.cfg.Flush != nil {
		l.cfg.Flush()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= len(leave)
	l.roomChanged()
}

func settlements(ds []*Delivery, err error) []settlement {
	leave := make([]settlement, len(ds))
	for i, d := range ds {
		leave[i] = settlement{d, err}
	}
	return leave
}
