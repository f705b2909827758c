package relay

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// ErrNoPublisher is in the error of a message that was deferred because Config has publishers only for other topics.
var ErrNoPublisher = errors.New("relay: no publisher for topic")

// publishers are those of a Config.
type publishers struct {
	byTopic map[string]*publisherState
	other   *publisherState // nil: topics that are not in byTopic have no publisher
	sole    *publisherState // nil: there are several
	all     []*publisherState
}

// Limits of the cooldown of a publisher that does not say when to try again. A try that fails at once costs little. A
// call that hangs holds up the shards of its batch, so the next try comes after at least the time that the call took.
const (
	minCooldown     = 10 * time.Millisecond
	maxCooldown     = 5 * time.Second
	maxHangCooldown = 30 * time.Second

	patience = time.Second // a call that takes longer without a confirmation hangs
)

// publisherState is a Publisher, and whether it cools down because it was unavailable. It is safe for concurrent use.
type publisherState struct {
	publisher outbox.Publisher
	leased    driver.LeasedPublisher // publisher, if it wants leased messages
	together  bool                   // several messages of a key may be in one call
	backoff   func(int) time.Duration

	mu       sync.Mutex
	failures int // calls in a row that found it unavailable
	since    time.Time
	until    time.Time
	why      error
	logged   time.Time // when the latest line about it was logged
}

// publisherLogInterval is how often it is logged that a publisher is still unavailable.
const publisherLogInterval = time.Minute

var brokerPause = pauseKey{cause: observe.CauseBroker}

func newPublishers(cfg Config) (ps publishers, err error) {
	ps = publishers{byTopic: make(map[string]*publisherState, len(cfg.Publishers))}
	stateOf := func(p outbox.Publisher) *publisherState {
		for _, s := range ps.all { // a Publisher of several topics gets their messages in one call
			if reflect.ValueOf(p).Comparable() && reflect.ValueOf(s.publisher).Comparable() && s.publisher == p {
				return s
			}
		}
		s := &publisherState{publisher: p, backoff: cfg.Backoff}
		if ended := usercode.Run(func() {
			atomic, isAtomic := p.(driver.AtomicPublisher)
			ordered, isOrdered := p.(driver.OrderedPublisher)
			s.together = isAtomic && atomic.Atomic() || isOrdered && ordered.Ordered()
			if s.leased, _ = p.(driver.LeasedPublisher); s.leased != nil && err == nil {
				err = cfg.enoughFor(p, s.leased.NeedsTime())
			}
		}); ended != nil {
			err = ended.Of(fmt.Sprintf("relay: Atomic, Ordered or NeedsTime of publisher %T", p))
		}
		ps.all = append(ps.all, s)
		return s
	}
	if cfg.Publisher != nil {
		ps.other = stateOf(cfg.Publisher)
	}
	for topic, p := range cfg.Publishers {
		ps.byTopic[topic] = stateOf(p)
	}
	if len(ps.all) == 1 {
		ps.sole = ps.all[0]
	}
	return ps, err
}

// of returns the publisher of topic, or nil.
func (ps *publishers) of(topic string) *publisherState {
	if p, ok := ps.byTopic[topic]; ok {
		return p
	}
	return ps.other
}

func (p *publisherState) typeName() string { return fmt.Sprintf("%T", p.publisher) }

// publish returns one answer for each message, which is safe to use, whatever the Publisher does. When the Publisher
// gave no usable answers, all of errs are the same error. leased are msgs as the outbox has them, where the publisher
// wants that.
func (p *publisherState) publish(ctx context.Context, msgs []outbox.Message,
	leased []driver.Leased,
) (errs []error, usable bool) {
	n, topic := len(msgs), msgs[0].Topic // the Publisher may change msgs
	var answers []error
	ended := usercode.Run(func() {
		if p.leased != nil {
			answers = p.leased.PublishLeased(ctx, leased)
			return
		}
		answers = p.publisher.Publish(ctx, msgs)
	})
	switch {
	case ended != nil:
		return p.noAnswers(n, topic, ended.Error()), false // a panic with a Permanent error is no answer either
	case answers != nil && len(answers) != n:
		return p.noAnswers(n, topic, fmt.Sprintf("gave %d answers for %d messages", len(answers), n)), false
	}
	errs = make([]error, n) // the Publisher may keep its slice
	for i, err := range answers {
		errs[i] = usercode.Error(err)
	}
	return errs, true
}

// noAnswers returns the errors of a call without usable answers: any of its messages may have been published.
func (p *publisherState) noAnswers(n int, topic, what string) []error {
	return slices.Repeat([]error{fmt.Errorf("relay: publisher %s of topic %q %s", p.typeName(), topic, what)}, n)
}

// coolingDown returns how long the publisher gets no messages, and why; 0: it gets some.
func (p *publisherState) coolingDown() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, time.Until(p.until)), p.why
}

// unproven reports whether the publisher was unavailable and has confirmed nothing since.
func (p *publisherState) unproven() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures > 0
}

// unavailable starts a cooldown after a call that began at began and confirmed nothing. It returns how long the
// cooldown is, and whether to log it.
func (p *publisherState) unavailable(ctx context.Context, ps *pauses, began time.Time,
	err *outbox.UnavailableError,
) (cooldown time.Duration, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 && began.Before(p.since) {
		return max(0, time.Until(p.until)), false
	}
	if p.failures++; p.failures == 1 {
		ps.begin(ctx, brokerPause, err)
	}
	p.since, p.why = time.Now(), err
	if cooldown = err.After; cooldown <= 0 {
		cooldown = min(max(p.backoff(p.failures), minCooldown), maxCooldown)
		if took := p.since.Sub(began); took >= patience {
			cooldown = max(cooldown, min(took<<min(p.failures-1, 4), maxHangCooldown))
		}
	}
	p.until = p.since.Add(cooldown)
	if log = p.failures == 1 || p.since.Sub(p.logged) >= publisherLogInterval; log {
		p.logged = p.since
	}
	return cooldown, log
}

// available ends the cooldown, and reports whether there was one.
func (p *publisherState) available(ctx context.Context, ps *pauses) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.failures > 0
	if was {
		ps.end(ctx, brokerPause)
	}
	p.failures, p.until, p.why = 0, time.Time{}, nil
	return was
}

// showsUnavailable reports whether err may come from the broker. The end of the lease also ends a call that the broker
// never answered: after patience that counts as an answer, or a broker that hangs would get full batches as long as
// leases are short.
func (b *batch) showsUnavailable(c *call, err error) bool {
	if errors.Is(err, driver.ErrNotTried) {
		return false
	}
	return !b.isLeaseEnd(c, err) || b.session.work.Err() == nil && time.Since(c.began) >= patience
}

// updatePublisher starts a cooldown of c's publisher when it is unavailable and confirmed nothing, and ends one when it
// confirmed a message.
func (b *batch) updatePublisher(c *call) {
	var unavailable *outbox.UnavailableError
	for _, i := range c.positions {
		switch err := b.errs[i]; {
		case err == nil:
			c.confirmed = true
		case unavailable == nil && b.showsUnavailable(c, err):
			errors.As(err, &unavailable)
		}
	}
	r, p, work := b.relay, c.queue.publisher, b.session.work
	defer r.pauses.report()
	switch {
	case c.confirmed:
		if p.available(work, &r.pauses) {
			r.cfg.Logger.InfoContext(work, "relay: a publisher is available again", "relay", r.cfg.Name, "publisher",
				p.typeName())
		}
	case unavailable != nil:
		var log bool
		c.cooldown, log = p.unavailable(work, &r.pauses, c.began, unavailable)
		if log {
			r.cfg.Logger.WarnContext(work, "relay: a publisher is unavailable and gets no messages for a while; no attempt is counted", "relay", r.cfg.Name,
				"publisher", p.typeName(), "next try", c.cooldown, "error", unavailable)
		}
	}
}
