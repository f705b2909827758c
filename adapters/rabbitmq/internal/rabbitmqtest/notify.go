package rabbitmqtest

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// patience is how long amqp091-go waits for a listener before it loses a notification.
const patience = 5 * time.Second

// notifyAll sends v to all listeners, and waits for each no longer than patience.
func notifyAll[T any](listeners []chan T, v T) {
	for _, l := range listeners {
		select {
		case l <- v:
			continue
		default:
		}
		late := time.NewTimer(patience)
		select {
		case l <- v:
		case <-late.C:
		}
		late.Stop()
	}
}

// tell sends listeners the reason of a close. It waits for none: as in amqp091-go, the channel of a listener that is
// not ready is closed without it.
func tell(listeners []chan *amqp.Error, err *amqp.Error) {
	if err == nil {
		return
	}
	for _, l := range listeners {
		select {
		case l <- err:
		default:
		}
	}
}

func closeAll[T any](listeners []chan T) {
	for _, l := range listeners {
		close(l)
	}
}

// listen adds receiver, or closes it if no more notifications will come.
func listen[T any](over bool, listeners *[]chan T, receiver chan T) {
	if over {
		close(receiver)
		return
	}
	*listeners = append(*listeners, receiver)
}
