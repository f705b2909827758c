package pgxstore

import (
	"cmp"
	"fmt"
	"slices"
)

// walKey is a key of which something is in the tables.
type walKey struct {
	shard int
	rows  int64 // as far as is known
}

// occupy makes key busy: what is queued of it is to be spilled, and what comes.
func (w *walWindow) occupy(key string, shard int, rows int64) {
	if key == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.busy[key]; k != nil {
		k.rows += rows
		return
	}
	w.busy[key] = &walKey{shard: shard, rows: rows}
	w.queues[shard] = slices.DeleteFunc(w.queues[shard], func(e *walEntry) bool {
		if e.Key != key {
			return false
		}
		e.state = walSpilling
		w.spill = append(w.spill, e)
		return true
	})
}

// touch is occupy for a note in the stream, once what the transaction has brought is placed.
func (w *walWindow) touch(key string, shard int) error {
	if shard >= len(w.queues) {
		return fmt.Errorf("pgxstore: outbox: a note of the stream is of shard %d, of %d", shard, len(w.queues))
	}
	w.mu.Lock()
	w.placeFresh()
	w.mu.Unlock()
	w.occupy(key, shard, 0)
	return nil
}

// toSpill returns what is to be spilled now. A shard of which something is leased is left out unless ending ends all of it:
// what is written could otherwise be leased from the tables and pass a message of its key.
func (w *walWindow) toSpill(ending map[int]int) []*walEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var now []*walEntry
	for _, e := range w.spill {
		if w.leased[e.Shard] == ending[e.Shard] {
			now = append(now, e)
		}
	}
	slices.SortFunc(now, func(a, b *walEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return now
}

// release ends the busyness of a key of which nothing is in the tables.
func (w *walWindow) release(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, key)
	var back []*walEntry
	w.spill = slices.DeleteFunc(w.spill, func(e *walEntry) bool {
		if e.Key == key {
			back = append(back, e)
			return true
		}
		return false
	})
	for _, e := range back {
		w.place(e)
	}
	if len(back) > 0 {
		w.notice()
	}
}

// busyKeys lists up to n keys that are busy, and of which nothing is known to be in the tables where empty is true.
func (w *walWindow) busyKeys(n int, empty bool) (keys []string, shards []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, k := range w.busy {
		if len(keys) >= n {
			break
		}
		if !empty || k.rows <= 0 {
			keys, shards = append(keys, key), append(shards, int16(k.shard))
		}
	}
	return keys, shards
}

func (w *walWindow) isBusy(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy[key] != nil
}

// gone says that so many rows of busy keys are no longer in outbox_messages.
func (w *walWindow) gone(rows map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, n := range rows {
		if k := w.busy[key]; k != nil {
			k.rows -= n
		}
	}
}

func (w *walWindow) anyBusy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.busy) > 0
}

// recount says how many rows a busy key has.
func (w *walWindow) recount(key string, rows int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.busy[key]; k != nil {
		k.rows = rows
	}
}
