package rabbitmq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// final is an error that trying again will not cure.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// refusesWithin is how long a server that was there before may hang up before that is taken for a refusal: a server that goes away, or
// comes back, does it for a moment.
const refusesWithin = 30 * time.Second

// hangsUp reports whether the server has ended the connection before it was open, without a word. RabbitMQ does that when it does not
// accept the password, so amqp091-go names no other reason.
func hangsUp(err error) bool {
	return errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost)
}

// hopeless adds to err what to do about it; nil if trying again may cure it.
func (s *Subscriber) hopeless(err error) error {
	var refused final
	if errors.As(err, &refused) {
		return refused
	}
	var e *amqp.Error
	if !errors.As(err, &e) {
		return nil
	}
	declared := "set Declare, or create it"
	if s.cfg.Declare {
		declared = "create what it is bound to"
	}
	for _, h := range []struct {
		code     int
		says     string // in the reason
		fix      string
		passable bool
	}{
		// A queue whose node is away is no missing queue.
		{code: amqp.NotFound, says: "down or inaccessible", passable: true},
		{code: amqp.NotFound, says: "home node", passable: true},
		{code: amqp.NotFound, fix: "it does not exist, or was deleted; " + declared},
		{code: amqp.AccessRefused, says: "exclusive use", passable: true},
		{code: amqp.AccessRefused, says: "access to", fix: "grant this user what the message names: read on the queue, and with Declare configure, " +
			"and for bindings write on the queue and read on the exchange"},
		{code: amqp.AccessRefused, fix: "the server does not accept this user; look at the user, the password and the virtual host that Dial was given"},
		{code: amqp.NotAllowed, says: "vhost", fix: "the virtual host that Dial was given does not exist, or is not this user's"},
		{code: amqp.PreconditionFailed, says: "timed out", passable: true},
		{code: amqp.PreconditionFailed, says: "unknown delivery tag", passable: true},
		{code: amqp.PreconditionFailed, fix: "the queue is other than Spec says: change Spec, or delete the queue when it is empty"},
		{code: amqp.NotImplemented, fix: "this server cannot do that"},
	} {
		if e.Code != h.code || !strings.Contains(e.Reason, h.says) {
			continue
		}
		if h.passable {
			return nil
		}
		return fmt.Errorf("%w; %s", err, h.fix)
	}
	return nil
}
