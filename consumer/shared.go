package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// sharedPark is a message that was parked, for the copies of it that waited meanwhile: the letter stands for them too.
type sharedPark struct {
	item *item
	// before its letter was written: a copy that came later may have been sent because the letter was discarded
	began   time.Time
	outcome MessageOutcome
}

// parkedAs returns the outcome of parking it, for its copies. It is nil if a copy may fare otherwise: it may have
// another Time, be readable, or not be in doubt.
func parkedAs(it *item, began time.Time, outcome MessageOutcome) *sharedPark {
	switch outcome.Cause {
	case observe.CausePermanent, observe.CauseExhausted, observe.CausePanic, observe.CauseMismatch:
		if it.refused == nil && it.rec.Key.ID != "" {
			return &sharedPark{item: it, began: began, outcome: outcome}
		}
	default: // decided by more than its content
	}
	return nil
}

// standsFor reports whether the letter is that of it, too: the same content under the same key, with the same headers
// and aliases. arrived is when the delivery of it came.
func (p *sharedPark) standsFor(it *item, arrived time.Time) bool {
	sameKey := func(a, b dedup.Record) bool { return a.Key == b.Key }
	return !arrived.After(p.began) && it.refused == nil && it.rec.Key == p.item.rec.Key &&
		it.rec.Fingerprint == p.item.rec.Fingerprint &&
		it.msg.Topic == p.item.msg.Topic && maps.Equal(it.msg.Headers, p.item.msg.Headers) &&
		slices.EqualFunc(it.aliases, p.item.aliases, sameKey) &&
		letterID(it) == p.outcome.Letter
}

// share acknowledges the copies of p in the batch that are not decided yet.
func (b *batch[TTx]) share(p *sharedPark) {
	for j := range b.items {
		if it := &b.items[j]; !it.done && b.errs[j] == nil && it.hash == p.item.hash && p.standsFor(it, b.arrived) {
			b.adoptPark(j, p)
		}
	}
}

// adoptPark makes items[i] a copy of p, whose letter is committed.
func (b *batch[TTx]) adoptPark(i int, p *sharedPark) {
	b.items[i].done = true
	b.pass.outcome(i, p.outcome)
}
