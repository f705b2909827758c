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
	standPatience = time.Second     // how long to wait until a relay that was told to has something to stand with
	ending        = 2 * time.Minute // how long a relay may take to stop, and before that to get ready for it
)

// keeper keeps one relay running and does the faults to it.
type keeper struct {
	name     string
	settings settings
	ground   *ground
	deck     *deck
	over     func(context.Context) bool // whether nothing more will be published
	say      *progress
	verbose  bool

	born    int
	relay   *process
	applied tally
}

// tally counts faults that were applied to a relay that held a lease.
type tally struct {
	kills     int
	pauses    int
	inPublish int // of them, with leased messages for sure
}

func (t *tally) add(u tally) {
	t.kills += u.kills
	t.pauses += u.pauses
	t.inPublish += u.inPublish
}

// run ends when ctx does, with the relay stopped, or when something goes wrong that is not a fault.
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
			k.deck.done()
		} else {
			k.deck.back(f)
		}
		if err == nil && !done {
			err = sleep(ctx, 50*time.Millisecond) // the other relay may be where this one is not
		}
		if err != nil && ctx.Err() == nil {
			return errors.Join(err, k.stop())
		}
	}
}

func (k *keeper) start() error {
	k.born++
	s := k.settings
	s.Name = fmt.Sprintf("%s.%d", k.name, k.born) // so that the database tells whose lease it is: this one's or its predecessor's
	relay, err := spawn(s, k.verbose)
	if err == nil {
		k.relay = relay // otherwise the dead one is what there is to stop
	}
	return err
}

// next waits for the next fault that is due; ok is false when ctx has ended.
func (k *keeper) next(ctx context.Context) (f fault, ok bool, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if f, ok := k.deck.draw(time.Now()); ok {
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

// failed is what to say of a relay that has ended by itself.
func (k *keeper) failed() error {
	return fmt.Errorf("%s ended by itself (%s)\n%s", k.relay.Name, k.relay.cmd.ProcessState, &k.relay.log)
}

// apply does f, if the relay is where f wants it and holds a lease. done says so.
func (k *keeper) apply(ctx context.Context, f *fault) (done bool, err error) {
	if shards, err := k.ground.held(ctx, k.relay.Name); err != nil || shards == 0 {
		return false, err
	}
	defer k.relay.order(orderFree)
	if !k.stands(ctx, f.place) {
		if k.over(ctx) {
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
	// The last look is the one that counts.
	shards, err := k.ground.held(ctx, k.relay.Name)
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

// stands waits until the relay stands where it is wanted.
func (k *keeper) stands(ctx context.Context, where place) bool {
	for len(k.relay.standing) > 0 {
		<-k.relay.standing // of an order that was taken back
	}
	switch where {
	case anywhere:
		return true
	case beforePublish:
		k.relay.order(orderBefore)
	default:
		k.relay.order(orderAfter)
	}
	late := time.NewTimer(standPatience)
	defer late.Stop()
	select {
	case <-k.relay.standing:
		return true
	case <-late.C:
	case <-k.relay.ended:
	case <-ctx.Done():
	}
	return false
}

// kill ends the relay as a power cut would, and starts another in its place.
func (k *keeper) kill(ctx context.Context, f *fault) error {
	k.relay.signal(syscall.SIGKILL)
	<-k.relay.ended
	k.applied.kills++
	k.say.fault("%s is killed (SIGKILL) %s", k.relay.Name, f.place)
	if sleep(ctx, f.rest) == nil {
		return k.start()
	}
	return nil // the run is over
}

// pause freezes the relay until its lease has run out, and lets it go on as if nothing had been.
func (k *keeper) pause(ctx context.Context, f *fault) error {
	begin := time.Now()
	k.relay.signal(syscall.SIGSTOP)
	slept := sleep(ctx, k.settings.Lease+f.rest)
	took := time.Since(begin)
	k.relay.signal(syscall.SIGCONT)
	if slept == nil {
		k.applied.pauses++
		k.say.fault("%s was frozen (SIGSTOP) %s, for %.1f s", k.relay.Name, f.place, took.Seconds())
	}
	return nil
}

// stop ends the relay as a deployment would.
func (k *keeper) stop() error {
	if k.dead() {
		return nil // killed on purpose, or its failure is known
	}
	select {
	case <-k.relay.ready:
	case <-k.relay.ended:
	case <-time.After(ending):
	}
	k.relay.order(orderFree)
	k.relay.signal(syscall.SIGTERM)
	select {
	case <-k.relay.ended:
	case <-time.After(ending):
		k.relay.signal(syscall.SIGKILL)
		<-k.relay.ended
		return fmt.Errorf("%s did not stop within %v of SIGTERM\n%s", k.relay.Name, ending, &k.relay.log)
	}
	if k.relay.err != nil {
		return fmt.Errorf("%s was told to stop and failed: %w\n%s", k.relay.Name, k.relay.err, &k.relay.log)
	}
	return nil
}

func (p place) String() string {
	switch p {
	case beforePublish:
		return "before it published"
	case afterPublish:
		return "between the broker's confirmation and its own note of it"
	default:
		return "wherever it was"
	}
}
