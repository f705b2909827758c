package deliver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/usercode"
)

// Deliverer hands deliveries to a Processor. It is safe for concurrent use.
type Deliverer struct {
	cfg           Config
	ctx           context.Context // ends when no further batch may begin
	stop          context.CancelFunc
	handling      context.Context // of the handlers
	cancelHandler context.CancelFunc

	handlers sync.WaitGroup

	mu        sync.Mutex
	waiting   []*Delivery // by number
	running   map[*batch]struct{}
	busy      map[string]*batch // by ordering key
	added     uint64            // the number of the last delivery
	reserved  int
	unsettled int           // deliveries that were added and not settled
	bytes     int           // the sum of their sizes
	changed   chan struct{} // closed when reserved, unsettled or bytes went down
	timer     *time.Timer   // runs dispatch when a kept delivery is due
	idle      chan struct{} // closed when nothing is in work; nil: Drain was not called
	err       error         // the first failure
}

// New returns a Deliverer that begins no batch after ctx ended, or after a message was rejected. Handlers get the
// values of ctx, but are not cancelled when it ends. Call Drain at the end.
func New(ctx context.Context, cfg Config) *Deliverer {
	cfg.Concurrency, cfg.MaxBatch = max(cfg.Concurrency, 1), max(cfg.MaxBatch, 1)
	cfg.Logger = usercode.Logger(cfg.Logger)
	if _, batches := cfg.Processor.(driver.BatchProcessor); !batches {
		cfg.MaxBatch = 1
	}
	dr := &Deliverer{cfg: cfg, running: map[*batch]struct{}{}, busy: map[string]*batch{}, changed: make(chan struct{})}
	dr.ctx, dr.stop = context.WithCancel(ctx)
	dr.handling, dr.cancelHandler = context.WithCancel(context.WithoutCancel(ctx))
	return dr
}

// Context ends when the adapter must receive nothing more.
func (dr *Deliverer) Context() context.Context { return dr.ctx }

// Fail ends Context. Drain returns the first err.
func (dr *Deliverer) Fail(err error) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.fail(err)
}

func (dr *Deliverer) fail(err error) {
	if dr.err == nil {
		dr.err = err
	}
	dr.stop()
}

// Reserve waits until there is room for at least one delivery, and reserves room for up to n. It returns 0 when Context
// ends.
func (dr *Deliverer) Reserve(n int) int {
	for {
		dr.mu.Lock()
		room := n
		if dr.cfg.Capacity > 0 {
			room = min(n, dr.cfg.Capacity-dr.reserved-dr.unsettled)
		}
		if dr.ctx.Err() == nil && room > 0 {
			dr.reserved += room
			dr.mu.Unlock()
			return room
		}
		changed := dr.changed
		dr.mu.Unlock()
		select {
		case <-changed:
		case <-dr.ctx.Done():
			return 0
		}
	}
}

// Release ends a reservation. Call it after Add.
func (dr *Deliverer) Release(n int) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.reserved -= n
	dr.signalChange()
}

// Unsettled returns how many deliveries were added and not settled, the sum of their sizes, and a channel that is
// closed when either has gone down.
func (dr *Deliverer) Unsettled() (deliveries, bytes int, changed <-chan struct{}) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	return dr.unsettled, dr.bytes, dr.changed
}

func (dr *Deliverer) signalChange() {
	close(dr.changed)
	dr.changed = make(chan struct{})
}

// Add takes deliveries in. It does not wait for handlers. After the end of Context they are given back at once.
func (dr *Deliverer) Add(ds ...*Delivery) {
	dr.mu.Lock()
	for _, d := range ds {
		dr.added++
		d.number, d.state = dr.added, waiting
		dr.bytes += d.Size
	}
	dr.waiting = append(dr.waiting, ds...)
	dr.unsettled += len(ds)
	if dr.ctx.Err() == nil {
		dr.dispatch()
		dr.mu.Unlock()
		return
	}
	given := settlements(dr.remove(dr.unreachable), stopped)
	dr.mu.Unlock()
	dr.settle(given)
}

// Lose says that the broker took d away. Its handler's context is cancelled with ErrLost as the cause; other deliveries
// of the same batch are then handled once more. Deliveries that wait behind d are given back. After Settle it does
// nothing.
func (dr *Deliverer) Lose(d *Delivery) {
	dr.mu.Lock()
	switch d.state {
	case unknown:
		dr.mu.Unlock()
	case inWork:
		// Its handler may run for long, and the broker may deliver nothing of the key until those behind d are given
		// back.
		if !d.lost() {
			d.lostAfter = dr.added
		}
		d.batch.cancel(ErrLost)
		behind := dr.removeBehind(d)
		dr.mu.Unlock()
		dr.settle(settlements(behind, behindLost))
	case waiting:
		behind := dr.removeBehind(d)
		dr.remove(func(w *Delivery) bool { return w == d })
		dr.mu.Unlock()
		dr.settle(append([]settlement{{d, ErrLost}}, settlements(behind, behindLost)...))
	}
}

// Withdraw takes d away if it waits, and calls Settle with ErrLost. If d is in work, that goes on: the caller has given
// d back, so that its end settles nothing.
func (dr *Deliverer) Withdraw(d *Delivery) {
	dr.mu.Lock()
	removed := dr.remove(func(w *Delivery) bool { return w == d })
	dr.mu.Unlock()
	given := make([]settlement, len(removed))
	for i, d := range removed {
		given[i] = settlement{d, ErrLost}
	}
	dr.settle(given)
}

// removeBehind removes the deliveries that wait behind d.
func (dr *Deliverer) removeBehind(d *Delivery) []*Delivery {
	return dr.remove(func(w *Delivery) bool { return w != d && w.Key != "" && w.Key == d.Key && w.number > d.number })
}

var (
	stopped    = &consumer.RetryError{Err: ErrStopped, Held: true}
	behindLost = &consumer.RetryError{
		Err:  fmt.Errorf("held back behind an earlier message of its key: %w", ErrLost),
		Held: true,
	}
)

// unreachable reports whether d will never be handled after the end of Context: no batch in work has its key.
func (dr *Deliverer) unreachable(d *Delivery) bool { return d.Key == "" || dr.busy[d.Key] == nil }

// remove removes a waiting delivery when leaves returns true for it, and returns the removed ones. dr.mu is held.
func (dr *Deliverer) remove(leaves func(*Delivery) bool) (removed []*Delivery) {
	kept := dr.waiting[:0]
	for _, d := range dr.waiting {
		if leaves(d) {
			d.state = unknown
			removed = append(removed, d)
		} else {
			kept = append(kept, d)
		}
	}
	clear(dr.waiting[len(kept):])
	dr.waiting = kept
	return removed
}

// settlement is the result of a delivery that the Deliverer has forgotten.
type settlement struct {
	d   *Delivery
	err error
}

func settlements(ds []*Delivery, err error) []settlement {
	all := make([]settlement, len(ds))
	for i, d := range ds {
		all[i] = settlement{d, err}
	}
	return all
}

// settle calls Settle and Flush. dr.mu is not held.
func (dr *Deliverer) settle(given []settlement) {
	if len(given) == 0 {
		return
	}
	bytes := 0
	for _, s := range given {
		dr.cfg.Settle(s.d, s.err)
		bytes += s.d.Size
	}
	if dr.cfg.Flush != nil {
		dr.cfg.Flush()
	}
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.unsettled -= len(given)
	dr.bytes -= bytes
	dr.signalChange()
}
