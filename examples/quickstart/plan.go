package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

const (
	partitions = 12
	maxCopies  = 5
	odd        = 400 // one message in this many is poison, and as many reuse another message's key
	minRun     = 100 // fewer messages do not suffice for the planted ones
	maxRun     = 10_000_000
)

// plan is derived from the seed: the messages, the partition and order of their deliveries, and the kills. The same
// seed and number of messages give the same plan in every process.
type plan struct {
	seed       uint64
	messages   []message
	deliveries []delivery
	alone      []bool // per order: it is its customer's only order, see Customer
	poison     int
	reused     int
	kills      killPlan
}

// message is one logical message. Its content encodes its number, which is its index in plan.messages.
type message struct {
	order     uint32 // number of the order whose key it carries: its own, or another message's if kind is reuse
	kind      kind
	copies    uint8 // 1 to maxCopies
	scattered bool  // its copies are on several partitions
}

type kind uint8

const (
	healthy kind = iota
	poison       // its handler always fails
	reuse        // different content with the key of a healthy message
)

// delivery is one copy of a message.
type delivery struct {
	message   uint32
	partition uint8
}

func newPlan(messages int, seed uint64) *plan {
	p := &plan{seed: seed, messages: make([]message, messages)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range p.messages {
		p.messages[i] = message{order: uint32(i), copies: uint8(1 + rng.IntN(maxCopies))}
	}
	p.plant(rng)
	p.layOut(rng)
	p.alone = make([]bool, messages)
	for _, m := range p.messages {
		p.alone[m.order] = p.alone[m.order] || m.scattered || m.kind == reuse
	}
	p.kills = newKillPlan(messages, seed)
	return p
}

// plant makes a few messages poison, gives a few the key of a healthy message, and scatters one in five.
func (p *plan) plant(rng *rand.Rand) {
	each := max(1, len(p.messages)/odd)
	perm := rng.Perm(len(p.messages))
	for i := range each {
		p.messages[perm[i]].kind = poison
		again := &p.messages[perm[each+i]]
		again.kind, again.order = reuse, uint32(perm[2*each+i])
	}
	p.poison, p.reused = each, each

	left := len(p.messages) / 5
	for _, i := range rng.Perm(len(p.messages)) {
		if m := &p.messages[i]; left > 0 && m.copies > 1 {
			m.scattered = true
			left--
		}
	}
}

// layOut puts every copy of every message on a partition, and shuffles the deliveries.
func (p *plan) layOut(rng *rand.Rand) {
	total := 0
	for _, m := range p.messages {
		total += int(m.copies)
	}
	p.deliveries = make([]delivery, 0, total)
	for i, m := range p.messages {
		home := m.home()
		for c := range int(m.copies) {
			at := home
			switch {
			case m.scattered && c == 1: // on another partition than copy 0
				at = (home + 1 + rng.IntN(partitions-1)) % partitions
			case m.scattered && c > 1:
				at = rng.IntN(partitions)
			}
			p.deliveries = append(p.deliveries, delivery{uint32(i), uint8(at)})
		}
	}
	rng.Shuffle(len(p.deliveries), func(i, j int) {
		p.deliveries[i], p.deliveries[j] = p.deliveries[j], p.deliveries[i]
	})
}

// home is the partition of a message's copies, except for scattered ones.
func (m message) home() int { return int(m.order * 2654435761 >> 16 % partitions) }

// Order returns the order in message i.
func (p *plan) Order(i int) Order {
	m := p.messages[i]
	o := Order{ID: orderID(int(m.order)), Customer: p.Customer(m), Amount: firstAmount + int64(i)}
	if m.kind == poison {
		o.Amount = -o.Amount
	}
	return o
}

// customers is the number of customers per partition.
const customers = 8

// Customer returns the customer of m's order. Most customers have many orders, all on one partition. A batch charges
// many customers in one transaction, which locks their accounts; batches of two partitions must not lock the same
// accounts in different orders. So an order that may come from several partitions is its customer's only one.
func (p *plan) Customer(m message) string {
	if p.alone[m.order] {
		return fmt.Sprintf("customer-of-%07d", m.order)
	}
	return fmt.Sprintf("customer-%02d-%d", m.home(), m.order%customers)
}

// firstAmount is the amount of message 0. The others count up from it, so an amount identifies its message.
const firstAmount = 1000

func orderID(n int) string { return fmt.Sprintf("order-%07d", n) }

// Find is the inverse of Order. It uses only ID and Amount.
func (p *plan) Find(o Order) (message int, ok bool) {
	i := o.Amount
	if i < 0 {
		i = -i
	}
	i -= firstAmount
	if i < 0 || i >= int64(len(p.messages)) {
		return 0, false
	}
	if planned := p.Order(int(i)); planned.ID != o.ID || planned.Amount != o.Amount {
		return 0, false
	}
	return int(i), true
}

// PlacedAt returns the time of message i, within the hour before start. All its copies carry the same time, because a
// different time would make it a different message.
func (p *plan) PlacedAt(i int, start time.Time) time.Time {
	return start.Add(-time.Hour).Add(time.Hour / time.Duration(len(p.messages)) * time.Duration(i))
}

// killPlan determines when workers are killed.
type killPlan struct {
	halts [statics]int // static worker i is killed inside the handler of its nth new message
	leave float64      // the dynamic worker gets SIGTERM after this share of all deliveries
	seed  uint64
}

// statics is the number of workers that restart under their name. One more worker is dynamic: it joins late and leaves
// early.
const statics = 2

// newKillPlan kills both static workers early, however the work is divided. The first is killed after at most one in
// twenty messages, the second after at most one in eight. Fewer than 30 % of the deliveries can have passed through
// both by that time, and the dynamic worker starts after that.
func newKillPlan(messages int, seed uint64) killPlan {
	rng := rand.New(rand.NewPCG(seed, 2))
	between := func(lo, hi int) int { return 1 + lo + rng.IntN(hi-lo+1) }
	return killPlan{
		halts: [statics]int{between(messages/100, messages/20), between(messages/12, messages/8)},
		leave: .35 + .25*rng.Float64(),
		seed:  seed,
	}
}

// kill is one kill of -kill-every.
type kill struct {
	after  time.Duration // since the previous kill
	worker int           // which static worker
	inside bool          // stop it inside a handler first; otherwise kill it at once
}

// Every yields kills at random intervals of about every, forever.
func (k killPlan) Every(every time.Duration) iter.Seq[kill] {
	return func(yield func(kill) bool) {
		rng := rand.New(rand.NewPCG(k.seed, 3))
		for {
			after := time.Duration(float64(every) * (.75 + .5*rng.Float64()))
			if !yield(kill{after, rng.IntN(statics), rng.IntN(2) == 0}) {
				return
			}
		}
	}
}
