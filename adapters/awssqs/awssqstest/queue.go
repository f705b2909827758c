package awssqstest

import (
	"container/list"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// queue is one queue, guarded by Server.mu.
type queue struct {
	settings
	name     string
	serial   int64 // distinguishes its receipt handles from those of an earlier queue of the same name
	created  time.Time
	modified time.Time
	messages *list.List              // of *message, in the order of sending
	byNumber map[int64]*list.Element // by message.number
	sent     map[string]sending      // recent sends, by deduplication id
	tokens   []string                // the deduplication ids, in the order of sending
	attempts map[string]attempt      // receives of a FIFO queue, by ReceiveRequestAttemptId
	mixed    bool                    // it has messages from other queues, so they are not ordered by age
	changed  chan struct{}           // closed when a message may have become visible for a reason other than time
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
	since    time.Time // its age counts from this time
	visible  time.Time // it is visible from this time on
	received int       // receives in all queues
	first    time.Time // time of the first receive
	last     time.Time // time of the last receive; maxVisibility counts from it
	here     int       // receives in this queue; part of receipt handles
}

// sending is the result of sending a deduplication id.
type sending struct {
	id, sequence string
	until        time.Time
}

// attempt is the result of a receive that may be repeated under the same ReceiveRequestAttemptId.
type attempt struct {
	until time.Time
	took  []took
}

// took identifies one receive of a message.
type took struct {
	number int64
	here   int
}

func (m *message) inFlight(now time.Time) bool { return m.here > 0 && m.visible.After(now) }

// all yields the messages in the order of sending. The yielded one may be removed.
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
	q.wake() // the next message of its group may become receivable
}

// wake makes waiting receives check the queue again.
func (q *queue) wake() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// wait returns a channel that the next wake closes.
func (q *queue) wait() <-chan struct{} {
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}

// expire removes messages older than the retention period, and old deduplication ids.
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

// next returns when the next message becomes visible by time alone; zero: never.
func (q *queue) next(now time.Time) (soonest time.Time) {
	for m := range q.all() {
		if m.visible.After(now) && (soonest.IsZero() || m.visible.Before(soonest)) {
			soonest = m.visible
		}
	}
	return soonest
}
