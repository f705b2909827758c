package pgxstore

import (
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
