package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// alarm records whether the server takes messages on a connection. A server that is short of memory or disk stops
// reading from every connection that publishes.
type alarm struct {
	mu  sync.Mutex
	why string // why it takes none; empty: it takes them
}

// watch follows the server's notifications on conn, in a goroutine that run starts. It calls then with each; then may
// be nil.
func (a *alarm) watch(conn Connection, run func(func()), then func(amqp.Blocking)) {
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	run(func() {
		for b := range blocks {
			a.set(b)
			if then != nil {
				then(b)
			}
		}
	})
}

func (a *alarm) set(b amqp.Blocking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = ""
	if b.Active {
		a.why = b.Reason
		a.why = cmp.Or(a.why, "no reason given")
	}
}

// refuses returns an error while the server takes no messages.
func (a *alarm) refuses() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == "" {
		return nil
	}
	return unavailable(fmt.Errorf("%w: %s", errBlocked, a.why))
}

var errBlocked = errors.New("rabbitmq: the server blocks all publishers (connection.blocked)")
