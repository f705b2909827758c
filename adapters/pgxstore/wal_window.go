package pgxstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pglogrepl"

	"github.com/txonce/txonce/outbox"
)

// walWindow is what a session knows of the stream beyond the position that is confirmed: its transactions in the order of
// their commits, and their messages until nothing more is to be done for them. It is safe for concurrent use.
//
// A message is queued, leased, and settled: confirmed by the broker or spilled to the tables. While something of a key is
// in the tables the key is busy: its messages do not get into the queue but are to be spilled, behind what is there.
// So a key is never in the tables and in the queue, and neither needs to know of the other's order.
type walWindow struct {
	mu      sync.Mutex
	entries map[int64]*walEntry // by seq
	txs     []*walTx            // in the order of their commits; the last one may be on its way
	current *walTx              // the one that is on its way
	idle    pglogrepl.LSN       // the server had nothing for us before it
	queues  [][]*walEntry       // by shard, in the order of seq
	spill   []*walEntry         // of busy keys, to be written to the tables
	leased  []int               // by shard
	busy    map[string]*walKey
	turn    int

	most, mostBytes int // of what is not settled
	open, bytes     int
	room            chan struct{} // a value when there may be room again
	wake            chan struct{} // a value when there are messages
	arrived         chan struct{} // closed and replaced when something has come
}

type walEntry struct {
	outbox.Leased // without content once it is settled
	state         walState
	size          int
	commit        pglogrepl.LSN // of its transaction
	tx            *walTx        // nil: the stream has not brought it since the connection was made
}

type walState int

const (
	walQueued walState = iota
	walLeased
	walSpilling // in walWindow.spill
	walSettled
)

type walTx struct {
	commit, end pglogrepl.LSN // end: 0 while it is on its way
	seqs        []int64
	open        int         // messages that are not settled
	fresh       []*walEntry // that nobody can see before the commit has arrived, or there are many
}

// walFresh is how many messages of a transaction are kept together until its commit arrives, as they would be in a table.
const walFresh = 1000

// walKey is a key of which something is in the tables.
type walKey struct {
	shard int
	rows  int64 // as far as is known
}

func newWALWindow(shards, most, mostBytes int) *walWindow {
	return &walWindow{
		entries: map[int64]*walEntry{}, queues: make([][]*walEntry, shards), leased: make([]int, shards), busy: map[string]*walKey{},
		most: most, mostBytes: mostBytes, room: make(chan struct{}, 1), wake: make(chan struct{}, 1), arrived: make(chan struct{}),
	}
}

// restart is called when a connection begins: the stream brings again what is not confirmed.
func (w *walWindow) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placeFresh()
	w.txs, w.current, w.idle = nil, nil, 0
	for _, e := range w.entries {
		e.tx = nil
	}
}

// known says that the message was settled by an earlier session, or before the connection was lost.
func (w *walWindow) known(seq int64, commit pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries[seq] == nil {
		w.entries[seq] = &walEntry{Leased: outbox.Leased{Seq: seq}, state: walSettled, commit: commit}
	}
}

func (w *walWindow) begin(commit pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = &walTx{commit: commit}
	w.txs = append(w.txs, w.current)
}

// add takes in a message of the transaction that is on its way. It is committed, so that it may be leased before the end of
// the transaction has arrived: a large one must not have to fit into memory.
func (w *walWindow) add(m outbox.Leased) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.current == nil:
		return fmt.Errorf("pgxstore: outbox: message %d of the stream is in no transaction", m.Seq)
	case m.Shard >= len(w.queues):
		return fmt.Errorf("pgxstore: outbox: message %d of the stream is of shard %d, of %d", m.Seq, m.Shard, len(w.queues))
	}
	e := w.entries[m.Seq]
	if e == nil {
		e = &walEntry{Leased: m, size: sizeOf(&m), commit: w.current.commit}
		w.entries[m.Seq] = e
		w.open++
		w.bytes += e.size
		w.current.fresh = append(w.current.fresh, e)
		if len(w.current.fresh) >= walFresh || w.isFull() {
			w.placeFresh()
		}
	}
	e.tx = w.current
	e.tx.seqs = append(e.tx.seqs, e.Seq)
	if e.state != walSettled {
		e.tx.open++
	}
	return nil
}

func sizeOf(m *outbox.Leased) int {
	n := len(m.Payload) + len(m.Key)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return n
}

// placeFresh makes what has come of the current transaction visible. The caller holds mu.
func (w *walWindow) placeFresh() {
	if w.current == nil || len(w.current.fresh) == 0 {
		return
	}
	for _, e := range w.current.fresh {
		w.place(e)
	}
	w.current.fresh = nil
	w.notice()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// place puts e where a lease or a spill finds it. The caller holds mu.
func (w *walWindow) place(e *walEntry) {
	if e.Key != "" && w.busy[e.Key] != nil {
		e.state = walSpilling
		w.spill = append(w.spill, e)
		return
	}
	e.state = walQueued
	q := w.queues[e.Shard]
	i := len(q)
	for i > 0 && q[i-1].Seq > e.Seq {
		i--
	}
	w.queues[e.Shard] = slices.Insert(q, i, e)
}

// notice wakes whoever waits for messages, or for the position. The caller holds mu.
func (w *walWindow) notice() {
	close(w.arrived)
	w.arrived = make(chan struct{})
}

func (w *walWindow) end(end pglogrepl.LSN) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		return errors.New("pgxstore: outbox: a transaction of the stream ends that has not begun")
	}
	w.placeFresh()
	w.current.end = end
	w.current = nil
	w.notice()
	return nil
}

// keepalive says that the stream has brought everything that was committed before lsn.
func (w *walWindow) keepalive(lsn pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil && lsn > w.idle {
		w.idle = lsn
		w.notice()
	}
}

// received is the position up to which the stream has brought everything, and a channel that is closed when it changes.
func (w *walWindow) received() (pglogrepl.LSN, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lsn := w.idle
	for i := len(w.txs) - 1; i >= 0; i-- {
		if w.txs[i].end != 0 {
			lsn = max(lsn, w.txs[i].end)
			break
		}
	}
	return lsn, w.arrived
}

// full says that the stream is to wait: nothing more is read until a message is settled.
func (w *walWindow) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isFull()
}

func (w *walWindow) isFull() bool { return w.open >= w.most || w.bytes >= w.mostBytes }

// lease takes queued messages of shards in held, by shard in the order of seq.
func (w *walWindow) lease(want outbox.Want, held map[int]int64) []outbox.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	var msgs []outbox.Leased
	parts := max(want.Part, 1)
	first := w.turn % parts
	w.turn++
	size := 0
	// Each shard gives a part of the batch first, which spreads it over many keys, and then whatever there is room for.
	shards := w.idleShards(first, parts, held)
	take := func(n, most int) (room bool) {
		taken := 0
		for _, e := range w.queues[n] {
			if taken == most {
				break
			}
			if len(msgs) >= want.Limit || len(msgs) > 0 && want.Bytes > 0 && size+e.size > want.Bytes {
				w.takeOut(n, taken)
				return false
			}
			e.state, e.Token = walLeased, held[n]
			msgs = append(msgs, e.Leased)
			size += e.size
			taken++
		}
		w.takeOut(n, taken)
		return true
	}
	for _, most := range []int{(want.Limit + len(shards) - 1) / max(len(shards), 1), want.Limit} {
		for _, n := range shards {
			if !take(n, most) {
				return msgs
			}
		}
	}
	return msgs
}

// takeOut removes the first n of a shard's queue, which are leased now. The caller holds mu.
func (w *walWindow) takeOut(shard, n int) {
	clear(w.queues[shard][:n]) // not to be kept alive by the array
	w.queues[shard] = w.queues[shard][n:]
	w.leased[shard] += n
}

// idleShards lists those of a part of which nothing is leased, beginning with another one each time. The caller holds mu.
func (w *walWindow) idleShards(first, parts int, held map[int]int64) []int {
	var shards []int
	for n := first; n < len(w.queues); n += parts {
		if _, ours := held[n]; ours && w.leased[n] == 0 && len(w.queues[n]) > 0 {
			shards = append(shards, n)
		}
	}
	if len(shards) > 0 {
		cut := w.turn % len(shards)
		shards = append(shards[cut:], shards[:cut]...)
	}
	return shards
}

// taken returns the leased entry that o ends; nil: o is of the tables.
func (w *walWindow) taken(o *outbox.Outcome) *walEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[o.Seq]; e != nil && e.state == walLeased {
		return e
	}
	return nil
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

// giveBack ends the leases of entries that stay pending.
func (w *walWindow) giveBack(entries []*walEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		w.leased[e.Shard]--
		w.place(e)
	}
	if len(entries) > 0 {
		w.notice()
	}
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
