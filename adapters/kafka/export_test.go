package kafka

import "github.com/IBM/sarama"

// What the tests of unexported parts need of them.

type OffsetTracker = offsetTracker

var (
	Retention = retention
	PassOver  = passOver
)

const Forever = forever

func (t *offsetTracker) Deliver(raw *sarama.ConsumerMessage) *trackedOffset { return t.deliver(raw) }

func (t *offsetTracker) Finish(o *trackedOffset) (low *sarama.ConsumerMessage) { return t.finish(o) }

func (t *offsetTracker) Len() (n int) {
	for o := t.first; o != nil; o = o.next {
		n++
	}
	return n
}
