package deliver

import (
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
)

// HandlerExit is the usual time that Drain leaves to handlers whose context is cancelled.
const HandlerExit = 5 * time.Second

// Drain ends Context, gives back waiting deliveries, and waits for the batches in work: first for the grace period,
// then, with the handlers' contexts cancelled, for exit. It returns nil, or why the Deliverer stopped: a message was
// rejected, Fail was called, or a handler still runs although its context is cancelled (ErrAbandoned). Deliveries that
// are added later are given back.
func (dr *Deliverer) Drain(grace, exit time.Duration) error {
	dr.stop()
	dr.mu.Lock()
	given := settlements(dr.remove(dr.unreachable), stopped)
	idle := make(chan struct{})
	if len(dr.running) > 0 {
		dr.idle = idle
	} else {
		close(idle)
	}
	dr.mu.Unlock()
	dr.settle(given)

	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-idle:
		return dr.end(nil)
	case <-timer.C:
	}
	if first, batches := dr.inWork(); batches > 0 {
		dr.cfg.Logger.Warn("a handler was still running after the grace period; its context is cancelled", "first",
			first, "batches", batches)
	}
	dr.cancelHandler()
	timer.Reset(exit)
	select {
	case <-idle:
		return dr.end(nil)
	case <-timer.C:
		return dr.end(dr.abandon())
	}
}

// Wait waits for all handlers to return, including those that Drain abandoned.
func (dr *Deliverer) Wait() { dr.handlers.Wait() }

// end is the end of Drain: all batches are answered or abandoned.
func (dr *Deliverer) end(abandoned error) error {
	dr.cancelHandler()
	if abandoned == nil {
		dr.handlers.Wait()
	}
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if dr.timer != nil {
		dr.timer.Stop()
	}
	return errors.Join(dr.err, abandoned)
}

// inWork returns the position of a message in work, and how many batches are.
func (dr *Deliverer) inWork() (first string, batches int) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	for b := range dr.running {
		return b.deliveries[0].Message.Position, len(dr.running)
	}
	return "", 0
}

// abandon gives up on the handlers that still run, and gives back their deliveries and those that wait behind them.
func (dr *Deliverer) abandon() error {
	dr.mu.Lock()
	var given []settlement
	for b := range dr.running {
		if b.answered { // its deliveries are being settled
			continue
		}
		b.abandoned = true
		for _, d := range b.deliveries {
			var err error = &consumer.RetryError{Err: ErrAbandoned, Held: true}
			if d.lost() {
				err = ErrLost
			}
			d.state = unknown
			given = append(given, settlement{d, err})
			if dr.busy[d.Key] == b {
				delete(dr.busy, d.Key)
			}
		}
		delete(dr.running, b)
	}
	abandoned := len(given)
	given = append(given, settlements(dr.remove(dr.unreachable), stopped)...)
	dr.mu.Unlock()
	dr.settle(given)
	if abandoned == 0 {
		return nil
	}
	return fmt.Errorf("%w: nothing of message %s is acknowledged", ErrAbandoned, given[0].d.Message.Position)
}
