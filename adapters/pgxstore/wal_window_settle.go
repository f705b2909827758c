package pgxstore

import (
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/txonce/txonce/outbox"
)

// settled ends entries for good. Those that were spilled count as rows of their keys.
func (w *walWindow) settled(sent, spilled []*walEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range spilled {
		if k := w.busy[e.Key]; e.Key != "" && k != nil {
			k.rows++
		}
		w.finish(e)
	}
	for _, e := range sent {
		w.finish(e)
	}
	w.spill = slices.DeleteFunc(w.spill, func(e *walEntry) bool { return e.state == walSettled })
	select {
	case w.room <- struct{}{}:
	default:
	}
}

func (w *walWindow) finish(e *walEntry) {
	if e.state == walSettled {
		return
	}
	if e.state == walLeased {
		w.leased[e.Shard]--
	}
	if e.tx != nil {
		e.tx.open--
	}
	w.open--
	w.bytes -= e.size
	e.state, e.Leased = walSettled, outbox.Leased{Seq: e.Seq}
}

// confirmable is up to where the slot may be told once settling is settled too, and whether messages of ours are among it.
// rest are those of settling that lie beyond.
func (w *walWindow) confirmable(settling []*walEntry) (lsn pglogrepl.LSN, ours bool, rest []*walEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ending := map[*walTx]int{}
	for _, e := range settling {
		if e.tx != nil && e.state != walSettled {
			ending[e.tx]++
		}
	}
	all := true
	for _, tx := range w.txs {
		if tx.end == 0 || tx.open > ending[tx] {
			all = false
			break
		}
		lsn, ours = tx.end, ours || len(tx.seqs) > 0
	}
	if all {
		lsn = max(lsn, w.idle)
	}
	for _, e := range settling {
		if e.tx == nil || e.tx.end == 0 || e.tx.end > lsn {
			rest = append(rest, e)
		}
	}
	return lsn, ours, rest
}

// confirmed forgets the transactions up to lsn.
func (w *walWindow) confirmed(lsn pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, tx := range w.txs {
		if tx.end == 0 || tx.end > lsn || tx.open > 0 {
			break
		}
		for _, seq := range tx.seqs {
			delete(w.entries, seq)
		}
		n++
	}
	w.txs = slices.Delete(w.txs, 0, n)
}
