package rabbitmqtest

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

// QueueState is the number of a queue's messages and consumers.
type QueueState struct {
	Ready     int // messages
	Unacked   int // messages that are delivered and not settled
	Consumers int
}

// Queue tells about a queue; ok is false if there is none of this name.
func (s *Server) Queue(name string) (state QueueState, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return QueueState{}, false
	}
	return QueueState{Ready: len(q.ready), Unacked: q.unacked, Consumers: len(q.consumers)}, true
}

// Messages returns the ready messages of a queue, in its order. They are copies, and cannot be acknowledged.
func (s *Server) Messages(name string) (msgs []amqp.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		for _, m := range q.ready {
			d := m.delivery(nil, "", 0)
			d.Acknowledger = nil
			msgs = append(msgs, d)
		}
	}
	return msgs
}

// DeleteQueue deletes a queue with its messages, as an operator does. Its consumers are told that they are cancelled.
func (s *Server) DeleteQueue(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		s.removeQueue(q)
	}
}

// DeleteExchange deletes an exchange with its bindings.
func (s *Server) DeleteExchange(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.exchanges, name)
}
