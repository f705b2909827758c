//go:build unix

package main

import (
	"math/rand/v2"
	"time"
)

// plan is derived from the seed: the commands for handlers, and the faults.
type plan struct {
	commands []command
	faults   []fault
	span     time.Duration // how long enqueueing takes at the requested rate
	refused  int           // number of commands that always fail
}

// last returns when the last fault is due.
func (p *plan) last() (due time.Duration) {
	for _, f := range p.faults {
		due = max(due, f.due)
	}
	return due
}

// command is the content of one incoming message.
type command struct {
	key   int
	count int  // messages to enqueue
	early bool // enqueue before the key's row is locked
	again bool // delivered twice
	fate  fate
	due   time.Duration // since the start
}

// fate is how an execution ends after it has enqueued.
type fate uint8

const (
	fine    fate = iota
	fails        // once, with an error
	panics       // once, with a panic
	breaks       // once, with a transaction that PostgreSQL has aborted
	refuses      // always
)

// fault is one kill or pause of a relay.
type fault struct {
	kill   bool // otherwise pause
	place  place
	due    time.Duration // earliest time, since the start
	rest   time.Duration // for a kill, how long until the restart; for a pause, how much longer than the lease it is
	misses int           // how often no relay reached the place after everything was published
}

// place is where in its work a fault hits a relay.
type place uint8

const (
	anywhere      place = iota
	beforePublish       // it has leased messages and is about to publish them
	afterPublish        // the broker has confirmed them
	places
)

func newPlan(o options) *plan {
	p := &plan{span: time.Duration(float64(o.messages) / float64(o.rate) * float64(time.Second))}
	p.addCommands(o, rand.New(rand.NewPCG(o.seed, 1)))
	p.addFaults(o, rand.New(rand.NewPCG(o.seed, 2)))
	return p
}

// addCommands makes commands until they have the requested number of messages. Messages of refused commands do not
// count.
func (p *plan) addCommands(o options, rng *rand.Rand) {
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

// addFaults spreads the faults evenly over the time of enqueueing, with kills and pauses shuffled.
func (p *plan) addFaults(o options, rng *rand.Rand) {
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
