package awssqstest

import (
	"container/list"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// queue is one queue. The Server's lock guards it.
type queue struct {
	settings
	name     string
	serial   int64 // tells receipt handles of a queue from those of one that had its name before
	created  time.Time
	modified time.Time
	messages *list.List              // of *message, in the order of sending
	byNumber map[int64]*list.Element // by message.number
	sent     map[string]sending      // deduplication: what was sent under an id of late
	tokens   []string                // the ids, in the order of sending
	attempts map[string]attempt      // receives of a FIFO queue, by their ReceiveRequestAttemptId
	mixed    bool                    // messages came from other queues: their age is not in the order of sending
	changed  chan struct{}           // closed when something may have become visible other than by time
}

// message is one message in a queue.
type message struct {
	number     int64
	id         string
	body       string
	attributes map[string]types.MessageAttributeValue
	trace      string
	group      string
	dedup      string
	sequence   string
	source     string // ARN of the queue that it was moved from

	sent     time.Time
	since    time.Time // its age counts from here
	visible  time.Time // from here on
	received int       // how often, in all queues
	first    time.Time // when first
	last     time.Time // when last; it cannot be in flight longer than maxVisibility from then on
	here     int       // how often received in this queue: what a receipt handle carries
}

// sending is what a deduplication id stands for.
type sending struct {
	id, sequence string
	until        time.Time
}

// attempt is what a receive returned that may be asked again.
type attempt struct {
	until time.Time
	took  []took
}

// took is one receive of a message.
type took struct {
	number int64
	here   int
}

func (m *message) inFlight(now time.Time) bool { return m.here > 0 && m.visible.After(now) }

// all are the messages in the order of sending. The one that is yielded may be removed.
func (q *queue) all() iter.Seq[*message] {
	return func(yield func(*message) bool) {
		for e := q.messages.Front(); e != nil; {
			next := e.Next()
			if !yield(e.Value.(*message)) {
				return
			}
			e = next
		}
	}
}

func (q *queue) add(m *message) {
	q.byNumber[m.number] = q.messages.PushBack(m)
	q.wake()
}

func (q *queue) remove(m *message) {
	if e := q.byNumber[m.number]; e != nil {
		q.messages.Remove(e)
		delete(q.byNumber, m.number)
	}
	q.wake() // its group may go on
}

// wake lets waiting receives look again.
func (q *queue) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// wait is closed by the next wake.
func (q *queue) wait() <-chan struct{} {
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}

// expire drops what is older than the retention, and deduplication ids that are over.
func (q *queue) expire(now time.Time) {
	for m := range q.all() {
		if now.Sub(m.since) >= q.retention {
			q.remove(m)
		} else if !q.mixed {
			break // the others are younger
		}
	}
	for len(q.tokens) > 0 && !q.sent[q.tokens[0]].until.After(now) {
		delete(q.sent, q.tokens[0])
		q.tokens = q.tokens[1:]
	}
}

// next is when time alone will make something visible; zero: never.
func (q *queue) next(now time.Time) (soonest time.Time) {
	for m := range q.all() {
		if m.visible.After(now) && (soonest.IsZero() || m.visible.Before(soonest)) {
			soonest = m.visible
		}
	}
	return soonest
}
