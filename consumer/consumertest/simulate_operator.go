package consumertest

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// operate replays dead letters, as an operator does, or discards them in cases with discards.
func (w *world) operate(p *Process, c *consumer.Consumer[*deduptest.Tx]) {
	for n := 0; ; n++ {
		f := p.sim.When("replay", "", func() bool {
			return p.stops() || w.left.Load() > 0 && len(w.db.Values(letters)) > 0
		})
		if p.stops() {
			return
		}
		switch f.Action {
		case sim.Gone:
			return
		case "crash":
			p.sim.Crash()
			return
		}
		found, err := c.DeadLetters(p.ctx, consumer.DeadLetterFilter{Limit: 1})
		if err != nil || len(found) == 0 { // the database is away
			w.pause(p, 100*time.Millisecond)
			continue
		}
		if w.left.Add(-1) < 0 {
			continue
		}
		w.working.Add(1)
		if w.s.discards && (w.n+n)%2 == 0 && found[0].Record.Key.ID != "" {
			w.discard(p, c, found[0])
		} else {
			ran, err := c.Replay(p.ctx, found[0], consumer.Replay{})
			p.sim.Note("the replay of %s has run: %v, %v", found[0].Record.Key.ID, ran, err)
		}
		w.working.Add(-1)
	}
}

type discardKey struct{}

// discard lets the operator drop a message on purpose.
func (w *world) discard(p *Process, c *consumer.Consumer[*deduptest.Tx], letter consumer.DeadLetter) {
	key := letter.Record.Key
	err := c.Discard(context.WithValue(p.ctx, discardKey{}, key), letter)
	p.sim.Note("the discard of %s: %v", key.ID, err)
}

// discarded is called when the transaction of a discard is committed. before says that the key was claimed before: then
// the message was processed, and only its letter is dropped.
func (w *world) discarded(key dedup.Key, before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !before {
		w.dropped[key] = true
	}
}

func (w *world) isDiscarded(key dedup.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped[key]
}

// checkDiscarded looks at a message that was discarded: it has a claim, and never an effect.
func (w *world) checkDiscarded(key dedup.Key, effects, letters int) error {
	if effects > 0 || letters > 0 || !w.claimed(key) {
		return fmt.Errorf("%s was discarded, and has %d effects and %d dead letters, and its key is claimed: %v", key.ID,
			effects, letters, w.claimed(key))
	}
	return nil
}
