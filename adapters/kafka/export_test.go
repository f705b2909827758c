package kafka

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
)

// What the tests of unexported parts need of them.

type (
	Marks    = marks
	Queue    = queue
	Delivery = delivery
)

var (
	Retention = retention
	PassOver  = passOver
)

const Forever = forever

func (l *marks) Deliver(raw *sarama.ConsumerMessage) *mark             { return l.deliver(raw) }
func (l *marks) Finish(m *mark) (low *sarama.ConsumerMessage)          { return l.finish(m) }
func (q *queue) Add(d *delivery)                                       { q.add(d) }
func (q *queue) Settle(batch []*delivery)                              { q.settle(batch) }
func (q *queue) Bytes() int                                            { return q.bytes }
func (d *delivery) Message() *consumer.Message                         { return d.msg }
func (d *delivery) Finish()                                            { d.finished = true }
func (d *delivery) Again(now time.Time, a time.Duration, h bool)       { d.again(now, a, h) }
func (d *delivery) NotBefore() time.Time                               { return d.notBefore }
func (q *queue) Pick(now time.Time, n, s int) ([]*delivery, time.Time) { return q.pick(now, n, s) }

func (l *marks) Len() (n int) {
	for m := l.first; m != nil; m = m.next {
		n++
	}
	return n
}

func (q *queue) Waiting() (msgs []*consumer.Message) {
	for _, d := range q.waiting {
		msgs = append(msgs, d.msg)
	}
	return msgs
}

func NewDelivery(msg *consumer.Message, size int) *delivery { return &delivery{msg: msg, size: size} }
func (d *delivery) Size() int                               { return d.size }
