package rabbitmqtest

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// buffer keeps a consumer's deliveries in the client until they are received. Only the prefetch limits their number.
type buffer struct {
	out  chan amqp.Delivery
	stop chan struct{} // closed: the buffered deliveries are dropped
	done chan struct{}

	mu    sync.Mutex
	queue []amqp.Delivery
	last  bool
	more  chan struct{}
}

func newBuffer() *buffer {
	b := &buffer{
		out: make(chan amqp.Delivery), stop: make(chan struct{}), done: make(chan struct{}),
		more: make(chan struct{}, 1),
	}
	go b.run()
	return b
}

func (b *buffer) run() {
	defer close(b.done)
	defer close(b.out)
	for {
		b.mu.Lock()
		var next []amqp.Delivery
		if len(b.queue) > 0 {
			next = b.queue[:1:1]
			b.queue = b.queue[1:]
		}
		last := b.last
		b.mu.Unlock()
		switch {
		case len(next) > 0:
			select {
			case b.out <- next[0]:
			case <-b.stop:
				return
			}
		case last:
			return
		default:
			select {
			case <-b.more:
			case <-b.stop:
				return
			}
		}
	}
}

func (b *buffer) add(d amqp.Delivery) {
	b.mu.Lock()
	b.queue = append(b.queue, d)
	b.mu.Unlock()
	b.wake()
}

// finish closes out when it is empty, or when ended is closed.
func (b *buffer) finish(ended <-chan struct{}) {
	b.mu.Lock()
	b.last = true
	b.mu.Unlock()
	b.wake()
	go func() {
		select {
		case <-b.done:
		case <-ended:
			close(b.stop)
			<-b.done
		}
	}()
}

// drop closes out now.
func (b *buffer) drop() {
	close(b.stop)
	<-b.done
}

func (b *buffer) wake() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}
