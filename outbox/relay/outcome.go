package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// minPartCooldown is how long a key is held back at least when its topic, or its part of the broker, is at fault.
const minPartCooldown = time.Second

// takeAnswers handles the answers of c's publisher, and enqueues the keys whose messages were confirmed.
func (b *batch) takeAnswers(c *call) {
	c.queue.busy = false
	b.updatePublisher(c)
	b.updateTopics(c)
	for _, k := range c.keys {
		sent, confirmed, decided := k.pending[:k.sent], true, false
		k.pending = k.pending[k.sent:]
		for _, i := range sent {
			switch {
			case b.errs[i] == nil:
				b.outcomes[i].Verdict = driver.Sent
			case !decided: // the first failure holds back the key; its later messages are Returned
				confirmed, decided = false, b.decide(i, c)
			}
		}
		if confirmed {
			b.enqueue(k)
		}
	}
}

// decide sets the outcome of a message that was not confirmed, and reports whether that holds back its key.
func (b *batch) decide(i int, c *call) bool {
	var unavailable *outbox.UnavailableError
	var topic *outbox.TopicError
	var deferred *driver.DeferError
	switch err := b.errs[i]; {
	case errors.Is(err, driver.ErrNotTried):
		return false
	case b.isLeaseEnd(c, err):
		return false
	case errors.As(err, &deferred):
		b.deferUncounted(i, max(deferred.After, minPartCooldown/10), err)
	case errors.As(err, &unavailable) && c.confirmed: // only a part of the broker is unavailable
		b.deferUncounted(i, max(unavailable.After, minPartCooldown), err)
	case errors.As(err, &unavailable):
		b.deferUnavailable(i, c.cooldown, err)
	case errors.As(err, &topic): // the topic has no cooldown when another message of it was confirmed in this call
		b.deferForTopic(i, max(c.topicCooldowns[b.outcomes[i].Topic], minPartCooldown), err)
	case outbox.IsPermanent(err):
		b.parkOrDefer(i, err)
	default:
		b.countFailure(i, err)
	}
	return true
}

// isLeaseEnd reports whether err came from the end of the lease, and not from the message or the broker. Before that
// end, a context error is that of a limit of the publisher's own.
func (b *batch) isLeaseEnd(c *call, err error) bool {
	return c.cutOff && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// deferUnavailable holds back a message whose publisher cools down. Where the relay has no other publisher, the
// dispatcher waits for the end of the cooldown, and nothing is written to the outbox.
func (b *batch) deferUnavailable(i int, cooldown time.Duration, why error) {
	b.unavailableErr = why
	if b.relay.publishers.sole == nil {
		b.deferUncounted(i, cooldown, why)
	}
}

func (b *batch) deferUncounted(i int, delay time.Duration, err error) {
	o := &b.outcomes[i]
	o.Verdict, o.Err, o.Delay, o.BrokerFault = driver.Deferred, err, delay, true
}

// countFailure counts an attempt against the message: it is deferred, or parked after MaxAttempts.
func (b *batch) countFailure(i int, err error) {
	o, cfg := &b.outcomes[i], &b.relay.cfg
	if o.Attempts+1 >= cfg.MaxAttempts {
		b.parkOrDefer(i, fmt.Errorf("attempt %d: %w", o.Attempts+1, err))
		return
	}
	o.Verdict, o.Err, o.Delay = driver.Deferred, err, max(0, cfg.Backoff(o.Attempts+1))
}

// parkOrDefer parks a message, or defers it when the park budget is spent.
func (b *batch) parkOrDefer(i int, err error) {
	o, cfg := &b.outcomes[i], &b.relay.cfg
	if wait, log := b.relay.parkBudget.take(); wait > 0 {
		if log {
			cfg.Logger.ErrorContext(b.session.work,
				"relay: too many messages to park (see Config.ParkLimit); they are held back and tried again",
				"relay", cfg.Name, "topic", o.Topic, "id", o.ID, "seq", o.Seq, "error", err)
		}
		b.deferUncounted(i, max(wait, minPartCooldown, cfg.Backoff(cfg.MaxAttempts)),
			fmt.Errorf("%w: %w", ErrParkLimit, err))
		return
	}
	b.parkTokens++
	o.Verdict, o.Err, o.ParkPolicy = driver.Parked, err, cfg.ParkPolicy
}
