package kafka

import "github.com/IBM/sarama"

// marks finds the low-water mark of a partition: the last message such that it and all messages delivered before it
// are finished. The order is that of delivery. Offsets say nothing about neighbours, because they have gaps
// where transactions ended and where the log was compacted.
//
// Finished messages side by side count as one, so that it holds at most twice as many as are unfinished, however long
// the first of them takes.
type marks struct {
	first, last *mark
}

// mark is one message, or a run of finished ones with the last of them.
type mark struct {
	raw        *sarama.ConsumerMessage
	finished   bool
	prev, next *mark
}

// deliver adds the next message.
func (l *marks) deliver(raw *sarama.ConsumerMessage) *mark {
	m := &mark{raw: raw, prev: l.last}
	if l.last != nil {
		l.last.next = m
	} else {
		l.first = m
	}
	l.last = m
	return m
}

// finish returns the low-water mark if that has moved, else nil. A message is finished once.
func (l *marks) finish(m *mark) *sarama.ConsumerMessage {
	m.finished = true
	if m.prev != nil && m.prev.finished {
		l.remove(m.prev)
	}
	if m.next != nil && m.next.finished {
		l.remove(m)
	}
	if low := l.first; low.finished {
		l.remove(low)
		return low.raw
	}
	return nil
}

func (l *marks) remove(m *mark) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		l.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		l.last = m.prev
	}
}
