package rabbitmqtest

import (
	"slices"
	"time"
)

// queue is a queue. The server's lock guards it.
type queue struct {
	queueArgs
	s          *Server
	name       string
	durable    bool
	autoDelete bool
	owner      *conn // of an exclusive one

	ready     []*message // in the order of their places
	unacked   int
	places    int64 // given out
	consumers []*consumer
	turn      int // of them
	gone      bool
	head      *time.Timer // expires the first message
	unused    *time.Timer // expires the queue
}

// consumer is a consumer of a queue.
type consumer struct {
	ch        *channel
	q         *queue
	tag       string
	autoAck   bool
	exclusive bool
	prefetch  int
	holds     int // messages that are not settled
}

// put appends m, and reports whether there was room.
func (q *queue) put(m *message) bool {
	if q.maxLength >= 0 && len(q.ready) >= q.maxLength && q.overflow != "drop-head" {
		if q.overflow == "reject-publish-dlx" {
			q.bury(m, "maxlen")
		}
		return false
	}
	now := time.Now()
	ttl := q.ttl
	if own, ok := expiration(m.p.Expiration); ok && (ttl < 0 || own < ttl) {
		ttl = own
	}
	if ttl >= 0 {
		m.expires = now.Add(ttl)
	}
	q.append(m)
	q.serveAt(now)
	for q.maxLength >= 0 && len(q.ready) > q.maxLength {
		q.bury(q.pop(), "maxlen")
	}
	return true
}

func (q *queue) append(m *message) {
	q.places++
	m.place = q.places
	q.ready = append(q.ready, m)
}

func (q *queue) pop() *message {
	m := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	return m
}

// giveBack puts m, which was delivered, back into the queue. A quorum queue buries it when it is over the delivery
// limit.
func (q *queue) giveBack(m *message, asked bool) {
	if q.gone {
		return
	}
	m.redelivered = true
	if q.quorum {
		m.count++
		if q.limit >= 0 && m.count > int64(q.limit) {
			q.bury(m, "delivery_limit")
			return
		}
		if q.limit < 0 && asked { // otherwise its log could never be truncated
			q.append(m)
			return
		}
	}
	at, _ := slices.BinarySearchFunc(q.ready, m.place,
		func(m *message, place int64) int { return int(m.place - place) })
	q.ready = slices.Insert(q.ready, at, m)
}

func (q *queue) serve() { q.serveAt(time.Now()) }

// serveAt delivers messages to the consumers that have room, and expires the messages at the head whose time is over.
func (q *queue) serveAt(now time.Time) {
	if q.gone || q.s.stopped || q.s.paused != nil {
		return
	}
	for len(q.ready) > 0 {
		if m := q.ready[0]; !m.expires.IsZero() && now.After(m.expires) {
			q.bury(q.pop(), "expired")
			continue
		}
		con := q.free()
		if con == nil {
			break
		}
		con.ch.deliver(con, q.pop())
	}
	q.arm()
}

// free returns the consumer whose turn it is, of those that may have one more.
func (q *queue) free() *consumer {
	n := len(q.consumers)
	if q.single {
		n = min(n, 1)
	}
	for i := range n {
		con := q.consumers[(q.turn+i)%n]
		if con.autoAck || (con.prefetch == 0 || con.holds < con.prefetch) && !con.ch.full() {
			q.turn = (q.turn + i + 1) % n
			return con
		}
	}
	return nil
}

// arm sets the timer that expires the first message. Later messages expire only after the first one has left, even if
// their own time is over.
func (q *queue) arm() {
	if q.head != nil {
		q.head.Stop()
		q.head = nil
	}
	if len(q.ready) == 0 || q.ready[0].expires.IsZero() {
		return
	}
	q.head = time.AfterFunc(max(time.Until(q.ready[0].expires)+1, 1), func() {
		q.s.mu.Lock()
		defer q.s.mu.Unlock()
		q.serve()
	})
}

// dismiss removes con from q. Its deliveries stay with its channel.
func (q *queue) dismiss(con *consumer) {
	q.consumers = slices.DeleteFunc(q.consumers, func(c *consumer) bool { return c == con })
	q.turn = 0
	switch {
	case len(q.consumers) > 0 || q.gone:
	case q.autoDelete:
		q.s.removeQueue(q)
		return
	default:
		q.used()
	}
	q.serve() // the next one may be the active one now
}

// used restarts the timer of a queue that expires when unused.
func (q *queue) used() {
	if q.unused != nil {
		q.unused.Stop()
	}
	if q.expires <= 0 || q.gone {
		return
	}
	q.unused = time.AfterFunc(q.expires, func() {
		q.s.mu.Lock()
		defer q.s.mu.Unlock()
		if len(q.consumers) == 0 {
			q.s.removeQueue(q)
		}
	})
}

// restart puts a durable queue into the state that it has after a restart of the server.
func (q *queue) restart() {
	if !q.quorum {
		q.ready = slices.DeleteFunc(q.ready, func(m *message) bool { return m.p.DeliveryMode != 2 })
	}
}

// removeQueue removes q with its messages, and cancels its consumers.
func (s *Server) removeQueue(q *queue) {
	if q.gone {
		return
	}
	q.gone = true
	delete(s.queues, q.name)
	s.unbind(q)
	q.ready = nil
	q.arm()
	if q.unused != nil {
		q.unused.Stop()
	}
	for _, con := range q.consumers {
		delete(con.ch.consumers, con.tag)
		con.ch.cancelled(con.tag)
	}
	q.consumers = nil
}
