package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txonce/txonce/consumer/driver"
)

// danger is a setting of a queue that can lose or park messages although no handler failed.
type danger struct {
	risk Risk // accepts it
	text string
	fix  string
}

// dangers returns those of the queue on a server of this version; an empty version is unknown.
func (c *SubscriberConfig) dangers(version string) (all []danger) {
	limit, ttl := c.Spec.limit(version), c.Spec.MessageTTL
	if limit > 0 && c.Spec.DeadLetters == nil {
		all = append(all, danger{
			RiskDeliveryLimit, fmt.Sprintf("rabbitmq: queue %s drops a message that was delivered more than %d times, even if no handler failed", c.Queue, limit),
			"give it a dead letter exchange (Spec.DeadLetters), or no limit (Spec.DeliveryLimit = rabbitmq.NoDeliveryLimit)",
		})
	}
	if ttl > 0 && c.Spec.DeadLetters == nil {
		all = append(all, danger{
			RiskExpiry, fmt.Sprintf("rabbitmq: queue %s drops a message that was not received for %v (Spec.MessageTTL without Spec.DeadLetters)", c.Queue, ttl),
			"set Spec.DeadLetters",
		})
	}
	overflow, _ := c.Spec.Args["x-overflow"].(string)
	for _, arg := range []string{"x-max-length", "x-max-length-bytes"} {
		if most, limited := c.Spec.Args[arg]; limited && c.Spec.DeadLetters == nil &&
			!strings.HasPrefix(overflow, "reject-publish") {
			all = append(all, danger{
				RiskMaxLength, fmt.Sprintf("rabbitmq: queue %s drops messages when it is full (%s is %v), also those that were received and go back to it", c.Queue, arg, most),
				"give it x-overflow reject-publish (Spec.Args), or a dead letter exchange (Spec.DeadLetters)",
			})
		}
	}
	if when := c.Spec.deletedWhen(); len(when) > 0 {
		all = append(all, danger{
			RiskTemporaryQueue, fmt.Sprintf("rabbitmq: the server deletes queue %s with its messages when %s", c.Queue,
				strings.Join(when, ", and when ")),
			"create a durable queue that is not auto-delete and has no x-expires",
		})
	}
	if windowed, ok := c.Processor.(driver.Windowed); ok && windowed.Window() < ttl {
		all = append(all, danger{
			RiskShortWindow, fmt.Sprintf("rabbitmq: queue %s keeps messages for up to %v (Spec.MessageTTL), the Processor remembers keys for %v",
				c.Queue, ttl, windowed.Window()),
			fmt.Sprintf("set its Window to %v", ttl),
		})
	}
	return all
}

// deletedWhen says when the server deletes the queue with its messages. A dead letter exchange does not get them.
func (q QueueSpec) deletedWhen() (when []string) {
	if life, there := q.Args["x-expires"]; there {
		when = append(when, fmt.Sprintf("it had no consumer for %v ms (x-expires)", life))
	}
	if q.autoDelete {
		when = append(when, "its last consumer ends (auto-delete)")
	}
	if q.transient {
		when = append(when, "the server restarts (not durable)")
	}
	return when
}

// checkDangers returns an error that names each danger that is not accepted.
func (c *SubscriberConfig) checkDangers(version string) error {
	var wrong []error
	for _, d := range c.dangers(version) {
		if !slices.Contains(c.AcceptedRisks, d.risk) {
			wrong = append(wrong, fmt.Errorf("%s; %s, or accept rabbitmq.%s (AcceptedRisks)", d.text, d.fix, d.risk))
		}
	}
	return errors.Join(wrong...)
}

// warnOfRisks warns of each accepted risk that exists.
func (c *SubscriberConfig) warnOfRisks(version string) {
	for _, d := range c.dangers(version) {
		c.Logger.Warn("rabbitmq: this can lose messages or park them, and is accepted", "accepted_risk", d.risk,
			"danger", d.text)
	}
	if c.Ordered && c.ConsumerTimeout != rabbitsTimeout {
		c.Logger.Warn("rabbitmq: SubscriberConfig.ConsumerTimeout cannot make a slow message go back alone, because of SubscriberConfig.Ordered: the messages behind it would "+
			"overtake it; when one message is not finished within that time, the server closes the channel and delivers all its messages again; "+
			"make handlers shorter, Prefetch smaller, or the server's consumer_timeout longer", "queue", c.Queue,
			"consumer_timeout", c.ConsumerTimeout)
	}
	if windowed, ok := c.Processor.(driver.Windowed); ok && c.Spec.MessageTTL == 0 {
		c.Logger.Warn("rabbitmq: the queue keeps messages for ever, and a message that waits for longer than the Processor remembers keys may be parked as unprovable; "+
			"give the Processor a longer Window, or the queue a time to live with a dead letter exchange (Spec.MessageTTL and Spec.DeadLetters), which keeps what expires", "queue", c.Queue, "remembers", windowed.Window())
	}
	if c.Spec.DeadLetters != nil && c.Spec.DeadLetters.Key == "" && !c.Ordered {
		c.Logger.Warn("rabbitmq: a message that was deferred and then dead-lettered has the queue's name as its routing key; bind the dead letter exchange with that key too, "+
			"or set x-dead-letter-routing-key (Spec.DeadLetters.Key)", "queue", c.Queue, "exchange",
			c.Spec.DeadLetters.Exchange)
	}
}

// errStream refuses a queue that no setting makes safe.
var errStream = errors.New("the queue is a stream (x-queue-type), and a Subscriber would lose messages: a stream does not deliver unacknowledged messages " +
	"again, and after a restart the Subscriber would get only messages that are published later; use a quorum queue or a classic one")
