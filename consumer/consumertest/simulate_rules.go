package consumertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// effects counts the effects of msg, which has that key.
func (w *world) effects(role string, key dedup.Key, msg *consumer.Message) int {
	if role == roleFirst && w.s.Effects != nil {
		return w.s.Effects(&World{w}, msg)
	}
	if w.claimed(key) {
		return 1
	}
	return 0
}

func (w *world) claimed(key dedup.Key) bool {
	return w.db.Claimed(key)
}

// letters are the dead letters of a key.
func (w *world) letters(key dedup.Key) (n int) {
	for _, l := range w.db.Values(letters) {
		if l.(consumer.DeadLetter).Record.Key == key {
			n++
		}
	}
	return n
}

// parkedAt reports whether there is a dead letter of the delivery at that position.
func (w *world) parkedAt(position string) bool {
	for _, l := range w.db.Values(letters) {
		if l.(consumer.DeadLetter).Message.Position == position {
			return true
		}
	}
	return false
}

// keyOf returns the key of msg, which must be the same at each delivery.
func (w *world) keyOf(p *Process, c *consumer.Consumer[*deduptest.Tx], msg consumer.Message) (dedup.Key, error) {
	key, err := c.KeyFor(&msg)
	if err != nil {
		return key, err
	}
	w.mu.Lock()
	before, found := w.keys[msg.Position]
	w.keys[msg.Position] = key
	w.mu.Unlock()
	if found && before != key {
		w.sim.Break("%s has the key %q, and had %q before: its redelivery is another message to the consumer; "+
			"Config.Key must depend only on what a redelivery keeps", msg.ID, key.ID, before.ID)
	}
	return key, nil
}

// checkAck is called when p acknowledges msg.
func (w *world) checkAck(p *Process, c *consumer.Consumer[*deduptest.Tx], msg *consumer.Message) {
	key, err := w.keyOf(p, c, *msg)
	if err != nil {
		if !w.parkedAt(msg.Position) {
			w.sim.Break("%s acknowledges %s, which has no key and no dead letter", p.Name(), msg.Position)
		}
		return
	}
	w.mu.Lock()
	w.known[known{p.role, key}] = *msg
	w.mu.Unlock()
	if w.effects(p.role, key, msg) == 0 && w.letters(key) == 0 && !w.isDiscarded(key) {
		w.sim.Break("%s acknowledges %s, which has neither an effect nor a dead letter", p.Name(),
			cmp.Or(msg.ID, "the message with key "+key.ID))
	}
}

// hasEffect reports whether the message of a letter has an effect, so that the letter must not be written. That of a
// mismatch is about other content under the message's key.
func (w *world) hasEffect(t *transaction, l *consumer.DeadLetter) bool {
	key, p := l.Record.Key, t.p
	if l.Cause == observe.CauseCrashed && t.about == "" { // of the trial of a suspect, which may be a duplicate
		return false
	}
	return key.ID != "" && l.Cause != observe.CauseMismatch &&
		(w.claimed(key) || w.effects(p.role, key, &l.Message) > 0)
}

// stale reports whether one of outcomes has an old token: another session has taken its shard.
func (w *world) stale(outcomes []driver.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o driver.Outcome) bool {
		return o.Token < w.db.Outbox().Token(o.Shard)
	})
}

// checkSettled is called after p has settled outcomes.
func (w *world) checkSettled(p *Process, about string, outcomes []driver.Outcome, stale bool) {
	if stale {
		w.sim.Break("%s settles with an outdated token: %s", p.Name(), about)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range outcomes {
		if o.Verdict == driver.Sent && w.arrived[o.ID] == 0 && !slices.Contains(p.topics, o.Topic) {
			w.sim.Break("%s marks %s as sent, which has not arrived", p.Name(), o.ID)
		}
	}
}

// checkHold is called when p begins to publish.
func (w *world) checkHold(p *Process, msgs []outbox.Message) {
	if p.sim.Dead() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		switch s := p.leased[m.ID]; {
		case s == nil:
			w.sim.Break("%s publishes %s, which it has not leased", p.Name(), m.ID)
		case !time.Now().Before(s.until):
			w.sim.Break("%s begins to publish %s although the hold that it was leased under has ended", p.Name(), m.ID)
		case !s.lost.IsZero() && time.Now().After(s.lost):
			w.sim.Break("%s begins to publish %s although it was told that its lease is lost", p.Name(), m.ID)
		}
	}
}

// atRest reports whether everything is done, and nothing is in progress that could do it again.
func (w *world) atRest() bool {
	return w.in.drained() && w.out.drained() && w.db.Open() == 0 && w.working.Load() == 0 && w.quiet() &&
		!w.sim.Busy("receive", "replay", "register", "open", "renew", "lease", "close")
}

// checkRest looks at a case that has come to rest.
func (w *world) checkRest() error {
	if n := w.db.Open(); n > 0 {
		return fmt.Errorf("%d transactions are open at rest", n)
	}
	for k, msg := range w.known {
		effects, n := w.effects(k.role, k.key, &msg), w.letters(k.key)
		w.found += effects
		if w.dropped[k.key] {
			if err := w.checkDiscarded(k.key, effects, n); err != nil {
				return err
			}
			continue
		}
		switch claimed := w.claimed(k.key); {
		case effects > 1:
			return fmt.Errorf("%s has %d effects", k.key.ID, effects)
		case effects+n == 0:
			return fmt.Errorf("%s has neither an effect nor a dead letter", k.key.ID)
		case claimed != (effects == 1):
			return fmt.Errorf("%s has %d effects, and its key is claimed: %v", k.key.ID, effects, claimed)
		}
	}
	for _, q := range []*source{w.in, w.out} {
		if err := w.checkOrder(q); err != nil {
			return err
		}
	}
	if w.s.Check == nil {
		return nil
	}
	return w.s.Check(&World{w})
}

// quiet reports whether the outbox is empty.
func (w *world) quiet() bool {
	if w.relays == 0 {
		return true
	}
	st, err := w.db.Outbox().Stats(context.WithoutCancel(w.ctx))
	return err == nil && st.Pending+st.Delayed+st.Parked+st.Waiting == 0
}
