package rabbitmq

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// record is a message that is being sent to the server.
type record struct {
	topic         string // Message.Topic; empty: the copy of a message that a Subscriber retries
	exchange, key string
	msg           amqp.Publishing
	then          func(error) // called once, with the answer

	written  bool         // guarded by confirmChannel.mu
	returned *amqp.Return // no queue got it; guarded by confirmChannel.mu

	once sync.Once
	done chan struct{} // closed after then has returned
}

// destination is where a server routes a message. It may refuse all messages to it, or not confirm them.
type destination struct{ exchange, key string }

func (r *record) destination() destination { return destination{r.exchange, r.key} }

// answer sets the answer to r. Only the first one counts.
func (r *record) answer(err error) {
	r.once.Do(func() {
		r.then(err)
		close(r.done)
	})
}

// open reports whether r has no answer yet.
func (r *record) open() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// answerAll answers each of records with err.
func answerAll(records []*record, err error) {
	for _, r := range records {
		r.answer(err)
	}
}

// unanswered returns those of records that have no answer.
func unanswered(records []*record) (open []*record) {
	for _, r := range records {
		if r.open() {
			open = append(open, r)
		}
	}
	return open
}
