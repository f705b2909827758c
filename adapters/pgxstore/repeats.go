package pgxstore

import "sync/atomic"

// repeats counts the claims since the last one that inserted a row. Duplicates come in runs, after a rebalance for example, and a broker
// such as Kafka does not mark them. During a run each message is looked for before it is claimed, which saves a round trip. The first new
// message after a run costs one.
type repeats struct{ n atomic.Int32 }

// run is how many duplicates make a run.
const run = 4

func (r *repeats) likely() bool { return r.n.Load() >= run }

func (r *repeats) count(duplicate bool) {
	switch n := r.n.Load(); {
	case !duplicate && n > 0:
		r.n.Store(0)
	case duplicate && n < run:
		r.n.Add(1)
	}
}
