package lanes

import (
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Drain ends Context, gives back what waits, and waits for what is in work: first patiently, for the grace period, then with the
// handlers' contexts cancelled. It returns nil if all is well, or why it stopped: a message was rejected, Fail was called,
// or a handler goes on although its context is cancelled. What is added from now on is given back.
func (l *Lanes) Drain() error {
	l.stop()
	l.mu.Lock()
	leave := settlements(l.takeOut(l.unreachable), stopped)
	quiet := make(chan struct{})
	if len(l.running) > 0 {
		l.quiet = quiet
	} else {
		close(quiet)
	}
	l.mu.Unlock()
	l.settle(leave)

	timer := time.NewTimer(l.cfg.Grace)
	defer timer.Stop()
	select {
	case <-quiet:
		return l.end(nil)
	case <-timer.C:
	}
	if first := l.first(); first != "" {
		l.cfg.Logger.Warn("a handler was still running after the grace period; its context is cancelled", "first", first)
	}
	l.cancel()
	timer.Reset(l.cfg.Settling)
	select {
	case <-quiet:
		return l.end(nil)
	case <-timer.C:
		return l.end(l.abandon())
	}
}

// end is Drain's when all batches are answered or abandoned.
func (l *Lanes) end(abandoned error) error {
	l.cancel()
	if abandoned == nil {
		l.handlers.Wait()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	return errors.Join(l.err, abandoned)
}

// first is the position of a message in work.
func (l *Lanes) first() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range l.running {
		return b.deliveries[0].Message.Position
	}
	return ""
}

// abandon gives up on the handlers that go on, and gives back what they have and what waits behind them.
func (l *Lanes) abandon() error {
	l.mu.Lock()
	var leave []settlement
	for b := range l.running {
		if b.answered { // its answers are being settled
			continue
		}
		b.abandoned = true
		for _, d := range b.deliveries {
			var err error = &consumer.RetryError{Err: ErrAbandoned, Uncounted: true}
			if d.lost {
				err = ErrLost
			}
			d.state = unknown
			leave = append(leave, settlement{d, err})
			if l.busy[d.Key] == b {
				delete(l.busy, d.Key)
			}
		}
		delete(l.running, b)
	}
	abandoned := len(leave)
	leave = append(leave, settlements(l.takeOut(l.unreachable), stopped)...)
	l.mu.Unlock()
	l.settle(leave)
	if abandoned == 0 {
		return nil
	}
	return fmt.Errorf("%w: nothing of message %s is acknowledged", ErrAbandoned, leave[0].d.Message.Position)
}
