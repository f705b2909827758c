//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	stopPatience = time.Second     // how long a relay may take to reach the place of a fault
	ending       = 2 * time.Minute // how long a relay may take to become ready for SIGTERM, and then to stop
)

// keeper keeps one relay running and applies faults to it.
type keeper struct {
	name     string
	settings settings
	testbed  *testbed
	faults   *faultQueue
	finished func(context.Context) bool // whether nothing more will be published
	say      *progress
	verbose  bool

	born    int
	relay   *process
	applied tally
}

// tally counts the faults that were applied to a relay with a lease.
type tally struct {
	kills     int
	pauses    int
	inPublish int // faults that certainly hit a relay with leased messages
}

func (t *tally) add(u tally) {
	t.kills += u.kills
	t.pauses += u.pauses
	t.inPublish += u.inPublish
}

// run ends when ctx ends, after it has stopped the relay, or when something fails that is not a planned fault.
func (k *keeper) run(ctx context.Context) error {
	if err := k.start(); err != nil {
		return err
	}
	for {
		f, ok, err := k.next(ctx)
		if err != nil {
			return errors.Join(err, k.stop())
		}
		if !ok {
			return k.stop()
		}
		done, err := k.apply(ctx, &f)
		if done {
			k.faults.done()
		} else {
			k.faults.back(f)
		}
		if err == nil && !done {
			err = sleep(ctx, 50*time.Millisecond) // the other relay may reach the fault's place
		}
		if err != nil && ctx.Err() == nil {
			return errors.Join(err, k.stop())
		}
	}
}

func (k *keeper) start() error {
	k.born++
	s := k.settings
	// unique, so that the database can tell a lease from the previous process's
	s.Name = fmt.Sprintf("%s.%d", k.name, k.born)
	relay, err := start(s, k.verbose)
	if err == nil {
		k.relay = relay // otherwise stop must see the old process
	}
	return err
}

// next waits for the next due fault; ok is false when ctx has ended.
func (k *keeper) next(ctx context.Context) (f fault, ok bool, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if f, ok := k.faults.draw(time.Now()); ok {
			return f, true, nil
		}
		select {
		case <-k.relay.ended:
			return f, false, k.failed()
		case <-ctx.Done():
			return f, false, nil
		case <-tick.C:
		}
	}
}

// failed is the error for a relay that ended unexpectedly.
func (k *keeper) failed() error {
	return fmt.Errorf("%s ended by itself (%s)\n%s", k.relay.Name, k.relay.State(), &k.relay.Log)
}

// apply applies f if the relay reaches the place of f and holds a lease. done tells whether it did.
func (k *keeper) apply(ctx context.Context, f *fault) (done bool, err error) {
	if shards, err := k.testbed.held(ctx, k.relay.Name); err != nil || shards == 0 {
		return false, err
	}
	defer k.relay.Order(orderFree)
	if !k.stopsAt(ctx, f.place) {
		if k.finished(ctx) {
			f.misses++
		}
		if f.misses > 4 {
			f.place = anywhere
		}
		if k.dead() {
			return false, k.failed()
		}
		return false, nil
	}
	// Check again right before the fault. Only this check counts.
	shards, err := k.testbed.held(ctx, k.relay.Name)
	if err != nil || shards == 0 {
		return false, err
	}
	if f.place != anywhere {
		k.applied.inPublish++
	}
	if f.kill {
		return true, k.kill(ctx, f)
	}
	return true, k.pause(ctx, f)
}

func (k *keeper) dead() bool {
	select {
	case <-k.relay.ended:
		return true
	default:
		return false
	}
}

// stopsAt waits until the relay stops at this place.
func (k *keeper) stopsAt(ctx context.Context, where place) bool {
	for len(k.relay.stopped) > 0 {
		<-k.relay.stopped // from an earlier order that was withdrawn
	}
	switch where {
	case anywhere:
		return true
	case beforePublish:
		k.relay.Order(orderBefore)
	default:
		k.relay.Order(orderAfter)
	}
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	select {
	case <-k.relay.stopped:
		return true
	case <-late.C:
	case <-k.relay.ended:
	case <-ctx.Done():
	}
	return false
}

// kill kills the relay and starts another one.
func (k *keeper) kill(ctx context.Context, f *fault) error {
	k.relay.Signal(syscall.SIGKILL)
	<-k.relay.ended
	k.applied.kills++
	k.say.fault("%s is killed (SIGKILL) %s", k.relay.Name, f.place)
	if sleep(ctx, f.rest) == nil {
		return k.start()
	}
	return nil // the run is over
}

// pause freezes the relay until its lease has expired, and then resumes it.
func (k *keeper) pause(ctx context.Context, f *fault) error {
	begin := time.Now()
	k.relay.Signal(syscall.SIGSTOP)
	slept := sleep(ctx, k.settings.Lease+f.rest)
	took := time.Since(begin)
	k.relay.Signal(syscall.SIGCONT)
	if slept == nil {
		k.applied.pauses++
		k.say.fault("%s was frozen (SIGSTOP) %s, for %.1f s", k.relay.Name, f.place, took.Seconds())
	}
	return nil
}

// stop ends the relay with SIGTERM, as a deployment would.
func (k *keeper) stop() error {
	if k.dead() {
		return nil // it was killed, or its failure was reported
	}
	select {
	case <-k.relay.ready:
	case <-k.relay.ended:
	case <-time.After(ending):
	}
	k.relay.Order(orderFree)
	k.relay.Signal(syscall.SIGTERM)
	select {
	case <-k.relay.ended:
	case <-time.After(ending):
		k.relay.Signal(syscall.SIGKILL)
		<-k.relay.ended
		return fmt.Errorf("%s did not stop within %v of SIGTERM\n%s", k.relay.Name, ending, &k.relay.Log)
	}
	if k.relay.err != nil {
		return fmt.Errorf("%s was told to stop and failed: %w\n%s", k.relay.Name, k.relay.err, &k.relay.Log)
	}
	return nil
}

func (p place) String() string {
	switch p {
	case beforePublish:
		return "before it published"
	case afterPublish:
		return "after the broker's confirmation and before it settled"
	default:
		return "wherever it was"
	}
}
