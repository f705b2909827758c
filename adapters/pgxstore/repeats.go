package pgxstore

import "sync/atomic"

// repeats counts the claims since the last one that inserted a row. Duplicates come in runs, after a rebalance for
// example, and a broker such as Kafka does not mark them. During a run messages are looked for before they are claimed,
// which saves a round trip. The first claim after a run costs one more if all of its messages are new.
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
