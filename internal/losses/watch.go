// Package losses notices that the database has lost commits of this process, where the source cannot be read again:
// after a failover to a standby that lacked them, or after a backup was restored. It asks the database once per interval
// while messages are committed, and not for each message.
//
// It reports a loss only if a claim that was committed is missing, or a row that it wrote itself has an older content.
// A restart of the database or of the process is thus no loss.
package losses

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

const (
	busyEvery = 5 * time.Second // while messages are committed
	idleEvery = time.Minute     // while there are none
	within    = 10 * time.Second
)

// Config configures a Watch.
type Config struct {
	Name     string        // of the consumer
	Source   string        // of the rows; empty: driver.SourceAcknowledged
	Window   time.Duration // older claims may be gone
	Resend   string        // ends the error: what a person has to do
	Logger   *slog.Logger
	WentBack func(context.Context, observe.Loss)
}

// Watch watches the database of one consumer in this process. Make it with New. A nil Watch does nothing. It is safe for
// concurrent use.
type Watch struct {
	cfg    Config
	store  driver.Positions
	reader driver.KeyReader

	asking sync.Mutex // held while the database is asked, guards beat and the next ones
	beat   beat
	failed int   // times in a row
	seen   int64 // marks.n at the last failure
	warned time.Time

	mu     sync.Mutex
	marks  marks
	met    int64 // the history of the last comparison
	sure   int64 // so many claims were in the database then
	doubt  int64 // the last claim that was committed with another history than the one before
	urgent bool  // the database is asked, or was asked, because of a doubt
	due    time.Time
	timer  *time.Timer
	closed bool
	stop   context.CancelFunc // ends an asking that runs; nil: none does
}

// New returns nil if store cannot tell what it has.
func New(store any, cfg Config) *Watch {
	positions, ok := store.(driver.Positions)
	reader, reads := store.(driver.KeyReader)
	if !ok || !reads {
		return nil
	}
	cfg.Source = cmp.Or(cfg.Source, driver.SourceAcknowledged)
	return &Watch{cfg: cfg, store: positions, reader: reader, marks: marks{space: firstSpace}}
}

// Begin returns the argument of Committed. Call it before a transaction begins.
func (w *Watch) Begin() (history int64) {
	if w == nil {
		return 0
	}
	return w.store.History()
}

// Committed notes that a transaction has committed count new claims, and key is one of them. It does not use the
// database.
func (w *Watch) Committed(history int64, key dedup.Key, count int) {
	if w == nil || count == 0 {
		return
	}
	if history == 0 {
		history = w.store.History()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	changed := w.marks.add(history, key, count, now)
	if changed || w.met != 0 && history != w.met {
		w.doubt = w.marks.n
		if !w.urgent {
			w.urgent = true
			w.arm(now, 0)
		}
	}
	w.arm(now, busyEvery)
}

// Moved notes that a transaction has committed count changes that have no key, so that no comparison can find them: a
// loss is noticed only if the row of this process is an older one. It does not use the database.
func (w *Watch) Moved(count int) {
	if w == nil || count == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.marks.move(count, now)
	w.arm(now, busyEvery)
}

// Close ends the watch, also while the database is asked. It does not use the database, and does not wait.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stop != nil {
		w.stop()
	}
}

// arm lets the database be asked after d, if it would not be asked before. w.mu is held.
func (w *Watch) arm(now time.Time, d time.Duration) {
	due := now.Add(d)
	switch {
	case w.closed || !w.due.IsZero() && !due.Before(w.due):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(d, w.run)
	default:
		w.timer.Reset(d)
	}
	w.due = due
}

func (w *Watch) run() {
	w.asking.Lock()
	defer w.asking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within) //nolint:forbidigo // no message waits for it
	defer cancel()
	w.mu.Lock()
	w.due, w.stop = time.Time{}, cancel
	n, closed := w.marks.n, w.closed
	w.mu.Unlock()
	if closed {
		return
	}
	var err error
	if ended := usercode.Run(func() { err = w.ask(ctx) }); ended != nil {
		err = ended
	}
	wait := w.after(ctx, err, n)
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait == idleEvery && w.marks.n > n {
		wait = busyEvery
	}
	w.arm(time.Now(), wait)
}

// after returns when the database is asked again.
func (w *Watch) after(ctx context.Context, err error, n int64) time.Duration {
	if err == nil {
		w.failed = 0
		return idleEvery
	}
	w.failed++
	// Whoever handles messages says that the database is away. This is for one that commits all the same.
	if w.failed >= 5 && n > w.seen && time.Since(w.warned) > time.Hour {
		w.warned = time.Now()
		w.cfg.Logger.WarnContext(ctx, "the database does not tell whether it has lost commits, so a loss would not be noticed",
			"consumer", w.cfg.Name, "error", err)
	}
	w.seen = n
	return min(busyEvery<<min(w.failed-1, 10), idleEvery)
}

// ask writes the row, and compares what the database has with what it had.
func (w *Watch) ask(ctx context.Context) error {
	w.mu.Lock()
	n, at, doubt, met := w.marks.n, time.Now(), w.doubt > w.sure, w.met
	w.mu.Unlock()
	if w.beat.epoch == 0 || doubt {
		return w.compare(ctx)
	}
	move := w.beat.PositionMove
	move.From, move.Next = w.beat.Next, w.beat.Next+n-w.beat.n
	left, err := w.store.MovePositions(ctx, met, []driver.PositionMove{move})
	if isChanged(err) || err == nil && len(left) > 0 {
		return w.compare(ctx)
	}
	if err != nil {
		return err
	}
	w.beat = beat{PositionMove: move, n: n, at: at, epoch: w.beat.epoch}
	w.settle(met, n)
	return nil
}

// settle notes that the database of history has the first n claims, except those that a person knows of.
func (w *Watch) settle(history, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.met, w.sure, w.urgent = history, n, false
	if w.doubt <= n {
		w.marks.settled()
	}
}

// compare looks the latest claims up, reports those that are missing, and takes a row.
func (w *Watch) compare(ctx context.Context) error {
	row, history, err := w.row(ctx)
	if err != nil {
		return err
	}
	rows, err := w.rows(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	since := int64(0)
	if w.beat.intact(row) {
		since = w.beat.n
	}
	n, began, last := w.marks.n, w.marks.began, w.marks.last
	marks := w.marks.since(since, time.Now().Add(-w.cfg.Window/2))
	same := w.beat.epoch == 0 && w.marks.history == history && w.doubt <= w.sure
	w.mu.Unlock()
	var loss *observe.Loss
	if !same {
		found := make([]bool, len(marks))
		for i, m := range marks {
			if _, found[i], err = w.reader.Lookup(ctx, m.key); err != nil {
				return err
			}
		}
		loss = lost(marks, found, w.beat, row, lastBefore(rows, began))
		if loss != nil && len(marks) == 0 && last.After(loss.To) { // what was committed after the row was written
			loss.To, loss.Messages = last, loss.Messages+n-w.beat.n
		}
	}
	b, written, err := w.take(ctx, rows, loss, n)
	if err != nil {
		return err
	}
	if written != history || w.store.History() != history {
		return fmt.Errorf("another server answers: %w", driver.ErrHistoryChanged)
	}
	w.beat = b
	w.settle(history, n)
	if loss != nil {
		w.mu.Lock()
		w.marks.reported = n
		w.mu.Unlock()
		w.report(ctx, *loss)
	}
	return nil
}

func (w *Watch) report(ctx context.Context, l observe.Loss) {
	l.Name = w.cfg.Name
	l.Err = fmt.Errorf("the database lost what it had committed between %s and %s, as after a failover to a standby that lacked "+
		"it, or after a backup was restored. %s", stamp(l.From), stamp(l.To), w.cfg.Resend)
	w.cfg.Logger.ErrorContext(ctx, l.Err.Error(), "consumer", l.Name, "from", l.From, "to", l.To, "acknowledged", l.Messages)
	if w.cfg.WentBack != nil {
		w.cfg.WentBack(ctx, l)
	}
}
