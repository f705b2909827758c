package kafka

import (
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// queue holds the unfinished messages of a partition in the order of their delivery, and decides which are next. Those in
// work stay in it: what follows with their keys must not overtake them. (internal/lanes does the like for brokers that
// acknowledge each message by itself. Here the order of delivery is what the offset needs, and a partition ends as a whole.)
type queue struct {
	waiting []*delivery
	working int // how many of them are in work
	bytes   int
}

// delivery is one unfinished message.
type delivery struct {
	msg       *consumer.Message
	mark      *mark
	size      int
	working   bool
	finished  bool
	notBefore time.Time // zero: at once
	spins     int       // how often in a row it was to be delivered again at once
}

func (q *queue) add(d *delivery) {
	q.waiting = append(q.waiting, d)
	q.bytes += d.size
}

// pick takes into work what may be handled now, in order, at most n messages of at most size bytes, but one at least if there
// is any. A message that must wait, or is in work, holds back what follows it with its key. wake is when the first of those
// that wait is due; zero if none does. Each batch is to be settled.
func (q *queue) pick(now time.Time, n, size int) (batch []*delivery, wake time.Time) {
	batch, wake = q.find(now, n, size)
	for _, d := range batch {
		d.working = true
	}
	q.working += len(batch)
	return batch, wake
}

func (q *queue) find(now time.Time, n, size int) (batch []*delivery, wake time.Time) {
	var held map[string]bool
	for _, d := range q.waiting {
		switch {
		case held[d.msg.Key]:
		case d.working || d.notBefore.After(now):
			if d.msg.Key != "" {
				if held == nil {
					held = map[string]bool{}
				}
				held[d.msg.Key] = true
			}
			if !d.working && (wake.IsZero() || d.notBefore.Before(wake)) {
				wake = d.notBefore
			}
		case len(batch) == n || len(batch) > 0 && d.size > size:
			return batch, wake
		default:
			batch = append(batch, d)
			size -= d.size
		}
	}
	return batch, wake
}

// settle takes a batch out of work, and forgets what is finished of it.
func (q *queue) settle(batch []*delivery) {
	for _, d := range batch {
		d.working = false
	}
	q.working -= len(batch)
	last, end := batch[len(batch)-1], 0 // nothing after it has changed
	for q.waiting[end] != last {
		end++
	}
	keep := end + 1
	for i := end; i >= 0; i-- {
		if d := q.waiting[i]; d.finished {
			q.bytes -= d.size
		} else {
			keep--
			q.waiting[keep] = d
		}
	}
	clear(q.waiting[:keep])
	q.waiting = q.waiting[keep:]
}

// inWork is the first message in work, of which there is one.
func (q *queue) inWork() *delivery {
	i := slices.IndexFunc(q.waiting, func(d *delivery) bool { return d.working })
	return q.waiting[i]
}

// again puts d off for as long as the Processor asks. held says that it waits for an earlier message of its key.
// To be delivered again at once is granted once; after that the wait grows, for a Processor that asks for it every
// time would keep a core and a database busy for nothing.
func (d *delivery) again(now time.Time, after time.Duration, held bool) {
	if after > 0 || held {
		d.spins = 0
	} else {
		after = spinDelay(d.spins)
		d.spins++
	}
	d.notBefore = now.Add(after)
}

func spinDelay(spins int) time.Duration {
	if spins == 0 {
		return 0
	}
	return min(10*time.Millisecond<<min(spins-1, 10), time.Second)
}
