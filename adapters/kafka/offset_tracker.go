package kafka

import "github.com/IBM/sarama"

// offsetTracker finds the offset of a partition that may be committed: that of the last message which is finished,
// together with all messages delivered before it. It compares the order of delivery, not offsets, because offsets have
// gaps where transactions ended and where the log was compacted.
//
// Adjacent finished messages share one entry, so it has at most twice as many entries as there are unfinished messages,
// however long the first of them takes.
type offsetTracker struct {
	first, last *trackedOffset
}

// trackedOffset is one message, or a run of finished messages with the last of them.
type trackedOffset struct {
	raw        *sarama.ConsumerMessage
	finished   bool
	prev, next *trackedOffset
}

// deliver adds the next message.
func (t *offsetTracker) deliver(raw *sarama.ConsumerMessage) *trackedOffset {
	o := &trackedOffset{raw: raw, prev: t.last}
	if t.last != nil {
		t.last.next = o
	} else {
		t.first = o
	}
	t.last = o
	return o
}

// finish returns the message whose offset may be committed now, or nil when that has not changed. Each message is
// finished once.
func (t *offsetTracker) finish(o *trackedOffset) *sarama.ConsumerMessage {
	o.finished = true
	if o.prev != nil && o.prev.finished {
		t.remove(o.prev)
	}
	if o.next != nil && o.next.finished {
		t.remove(o)
	}
	if low := t.first; low.finished {
		t.remove(low)
		return low.raw
	}
	return nil
}

func (t *offsetTracker) remove(o *trackedOffset) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		t.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		t.last = o.prev
	}
}
