package consumertest

import (
	"fmt"

	"github.com/txonce/txonce/dedup"
)

// landed remembers which keys a transaction has claimed, in the order of the commits, and which messages it has parked.
func (w *world) landed(t *transaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.letter != nil {
		w.parked[t.letter.Record.Key] = true
	}
	for _, key := range t.claims {
		if _, found := w.order[key]; !found && w.claimed(key) {
			w.order[key] = len(w.order) + 1
		}
	}
}

// checkOrder compares the order of the commits with that of the deliveries, for each ordering key of q. A message that
// was parked once may come later.
func (w *world) checkOrder(q *source) error {
	type last struct {
		at int
		id string
	}
	latest, seen := map[string]last{}, map[dedup.Key]bool{}
	for _, d := range q.all {
		key, found := w.keys[d.msg.Position]
		if at := w.order[key]; found && at > 0 && d.msg.OrderingKey != "" && !w.parked[key] && !seen[key] {
			before := latest[d.msg.OrderingKey]
			if at < before.at {
				return fmt.Errorf("%s of the ordering key %q was committed after %s, and was delivered before it", before.id,
					d.msg.OrderingKey, key.ID)
			}
			latest[d.msg.OrderingKey] = last{at, key.ID}
		}
		seen[key] = true
	}
	return nil
}
