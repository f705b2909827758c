//go:build unix

package main

import (
	"math/rand/v2"
	"time"
)

// plan is what the seed decides: the commands that handlers execute, and the faults.
type plan struct {
	commands []command
	faults   []fault
	span     time.Duration // how long enqueuing takes at the asked rate
	refused  int           // commands that fail for good
}

// last is when the last fault is due.
func (p *plan) last() (due time.Duration) {
	for _, f := range p.faults {
		due = max(due, f.due)
	}
	return due
}

// command is what one incoming message asks for.
type command struct {
	key   int
	count int  // messages to enqueue
	early bool // enqueue before the key's row is locked
	again bool // delivered a second time
	fate  fate
	due   time.Duration // since the start
}

// fate is how a handler's execution ends, after it has enqueued.
type fate uint8

const (
	fine    fate = iota
	fails        // once, with an error
	panics       // once
	breaks       // once, with a transaction that PostgreSQL has aborted
	refuses      // for good
)

// fault is one thing that is done to a relay.
type fault struct {
	kill   bool // else it is paused
	place  place
	due    time.Duration // since the start, not before
	rest   time.Duration // until the killed one is started again, or how much longer than the lease the pause is
	misses int           // how often no relay came to that place, when nothing more was to be published
}

// place is where in its work a fault strikes a relay.
type place uint8

const (
	anywhere      place = iota
	beforePublish       // it has leased messages and is about to publish them
	afterPublish        // the broker has confirmed them
	places
)

func newPlan(o options) *plan {
	p := &plan{span: time.Duration(float64(o.messages) / float64(o.rate) * float64(time.Second))}
	p.deal(o, rand.New(rand.NewPCG(o.seed, 1)))
	p.strike(o, rand.New(rand.NewPCG(o.seed, 2)))
	return p
}

// deal makes commands until their messages are as many as asked. What is refused does not count.
func (p *plan) deal(o options, rng *rand.Rand) {
	for made := 0; made < o.messages; {
		c := command{
			key:   rng.IntN(o.keys),
			count: min(1+rng.IntN(3), o.messages-made),
			early: rng.IntN(2) == 0,
			again: rng.IntN(40) == 0,
			due:   time.Duration(float64(p.span) * float64(made) / float64(o.messages)),
		}
		if rng.IntN(25) == 0 {
			c.fate = fails + fate(rng.IntN(4))
		}
		if c.fate == refuses {
			p.refused++
		} else {
			made += c.count
		}
		p.commands = append(p.commands, c)
	}
}

// strike spreads the faults evenly over the time of enqueuing, kills and pauses shuffled.
func (p *plan) strike(o options, rng *rand.Rand) {
	n := o.kills + o.pauses
	for i := range n {
		f := fault{kill: i < o.kills, place: place(i % int(places))}
		f.rest = 500*time.Millisecond + time.Duration(rng.Int64N(int64(500*time.Millisecond)))
		if f.kill && rng.IntN(2) == 0 {
			f.rest = 0
		}
		p.faults = append(p.faults, f)
	}
	rng.Shuffle(n, func(i, j int) { p.faults[i], p.faults[j] = p.faults[j], p.faults[i] })
	for i := range p.faults {
		p.faults[i].due = time.Duration(float64(p.span) * (float64(i) + .5) / (float64(n) + 1))
	}
}
