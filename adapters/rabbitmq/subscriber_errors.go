package rabbitmq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// fatalError is an error that will not pass when the Subscriber tries again.
type fatalError struct{ error }

func (f fatalError) Unwrap() error { return f.error }

// refusedAfter is how long a server must hang up on a Subscriber that was connected before this counts as a refusal. A
// server that stops or starts also hangs up, for a moment.
const refusedAfter = 30 * time.Second

// hangsUp reports whether the server closed the connection during the handshake without a reason. RabbitMQ does that
// when it does not accept the password, so amqp091-go names these reasons.
func hangsUp(err error) bool {
	return errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost)
}

// fatal returns nil if err may be temporary, and otherwise err together with its remedy.
func (r *run) fatal(err error) error {
	var fatal fatalError
	if errors.As(err, &fatal) {
		return fatal
	}
	var e *amqp.Error
	if !errors.As(err, &e) {
		return nil
	}
	declared := "set Declare, or create it"
	if r.cfg.Declare {
		declared = "create the exchanges it is bound to"
	}
	for _, known := range []struct {
		code   int
		reason string // a part of it
		fix    string
		passes bool
	}{
		// A queue whose node is away is not a missing queue.
		{code: amqp.NotFound, reason: "down or inaccessible", passes: true},
		{code: amqp.NotFound, reason: "home node", passes: true},
		{code: amqp.NotFound, fix: "it does not exist, or was deleted; " + declared},
		{code: amqp.AccessRefused, reason: "exclusive use", passes: true},
		{code: amqp.AccessRefused, reason: "access to", fix: "grant this user what the message names: read on the queue, and with Declare configure, " +
			"and for bindings write on the queue and read on the exchange"},
		{code: amqp.AccessRefused, fix: "the server does not accept this user; look at the user, the password and the virtual host that Dial was given"},
		{code: amqp.NotAllowed, reason: "vhost", fix: "the virtual host that Dial was given does not exist, or is not this user's"},
		{code: amqp.PreconditionFailed, reason: "timed out", passes: true},
		{code: amqp.PreconditionFailed, reason: "unknown delivery tag", passes: true},
		{code: amqp.PreconditionFailed, fix: "the queue differs from Spec: change Spec, or delete the queue when it is empty"},
		{code: amqp.NotImplemented, fix: "this server cannot do that"},
	} {
		if e.Code != known.code || !strings.Contains(e.Reason, known.reason) {
			continue
		}
		if known.passes {
			return nil
		}
		return fmt.Errorf("%w; %s", err, known.fix)
	}
	return nil
}
