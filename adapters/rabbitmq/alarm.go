package rabbitmq

import (
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// alarm says whether the server takes messages in on a connection. It does not when it is short of memory or disk: then it stops reading
// from each connection that publishes.
type alarm struct {
	mu  sync.Mutex
	why string // empty: it takes them in
}

func (a *alarm) set(b amqp.Blocking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = ""
	if b.Active {
		a.why = b.Reason
		if a.why == "" {
			a.why = "no reason given"
		}
	}
}

// refuses is an error while the server takes nothing in.
func (a *alarm) refuses() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == "" {
		return nil
	}
	return unavailable(fmt.Errorf("%w: %s", errBlocked, a.why))
}

var errBlocked = errors.New("rabbitmq: the server blocks all who publish (connection.blocked)")
