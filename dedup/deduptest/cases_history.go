package deduptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// history is a sequence of deliveries, ageing and sweeps on one database by two nodes. Its clock is the test's clock
// plus the time that the database has aged.
type history[TTx any] struct {
	*env[TTx]
	random   *rand.Rand
	nodes    [2]dedup.Store[TTx]
	aged     time.Duration
	messages []message
	seen     map[dedup.Verdict]int
	swept    int
}

type message struct {
	key  dedup.Key
	born time.Time // on the history's clock
	done bool
}

const historySteps = 240 // of each store, on each server and behind poolers

// quiet is a consumer whose windows are too long for a key to be forgotten.
const quiet = "quiet"

func randomHistory[TTx any](t *testing.T, e *env[TTx]) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	h := &history[TTx]{env: e, random: rand.New(rand.NewPCG(seed, 0)), seen: map[dedup.Verdict]int{}}
	for step := 0; step < historySteps; step++ {
		// Nodes are opened in a sub-test, and closed at its end: the nodes of the whole history need too many
		// connections.
		t.Run(fmt.Sprint("from step ", step), func(t *testing.T) { step = h.live(t, step) })
		if t.Failed() {
			return
		}
	}
	t.Logf("%v; %d keys forgotten in %v", h.seen, h.swept, h.aged)
	if h.swept == 0 || h.seen[dedup.Duplicate] == 0 || h.seen[dedup.Unprovable] == 0 {
		t.Error("nothing was forgotten and asked for again: this case tried nothing")
	}
}

// live opens both nodes and takes steps until a step ages the database, and returns that step. After ageing, new nodes
// are needed.
func (h *history[TTx]) live(t *testing.T, step int) int {
	for i := range h.nodes {
		h.nodes[i] = h.node(t)
	}
	for ; step < historySteps && !t.Failed(); step++ {
		switch n := h.random.IntN(100); {
		case n < 40:
			h.arrive(t, step)
		case n < 80 && len(h.messages) > 0:
			h.deliver(t, &h.messages[h.random.IntN(len(h.messages))])
		case n < 88:
			h.sweep(t)
		default:
			h.pass(t, time.Duration(h.random.Int64N(int64(5*time.Hour))))
			return step
		}
	}
	return step
}

// pass ages the database.
func (h *history[TTx]) pass(t *testing.T, d time.Duration) {
	h.aged += d
	h.Age(t, d)
}

func (h *history[TTx]) arrive(t *testing.T, step int) {
	skew := 50*time.Minute - time.Duration(h.random.Int64N(int64(5*time.Hour)))
	name := consumer
	if h.random.IntN(4) == 0 {
		name = quiet
	}
	h.messages = append(h.messages, message{
		key:  dedup.Key{Consumer: name, ID: fmt.Sprint(step)},
		born: time.Now().Add(h.aged + skew),
	})
	h.deliver(t, &h.messages[len(h.messages)-1])
}

func (h *history[TTx]) deliver(t *testing.T, m *message) {
	got := verdicts(t, h.nodes[h.random.IntN(2)], []dedup.Record{h.record(m)})[0]
	h.seen[got]++
	switch {
	case got == dedup.First && m.done:
		t.Errorf("%v, claimed before, is new again", m.key)
	case got == dedup.Mismatch, got == dedup.Duplicate && !m.done:
		t.Errorf("%v: %v, but nobody claimed it", m.key, got)
	case got == dedup.Unprovable && m.key.Consumer == quiet:
		t.Errorf("%v is unprovable, but none of its consumer's keys was ever forgotten", m.key)
	}
	m.done = m.done || got == dedup.First
}

func (h *history[TTx]) sweep(t *testing.T) {
	s := h.nodes[h.random.IntN(2)]
	swept, err := purger(t, s).Purge(bounded(t), dedup.Sweep{
		Owner: "suite", Lease: time.Minute,
		Limit: 1 + h.random.IntN(20),
	})
	if err != nil {
		t.Error(err)
	}
	h.swept += swept.Keys
	h.audit(t, s)
}

// audit delivers everything again, and rolls back.
func (h *history[TTx]) audit(t *testing.T, s dedup.Store[TTx]) {
	var recs []dedup.Record
	var done []message
	for i := range h.messages {
		if m := h.messages[i]; m.done {
			done, recs = append(done, m), append(recs, h.record(&m))
		}
	}
	ctx := bounded(t)
	err := retry(ctx, s, func() error {
		return s.InTx(ctx, recs, func(_ TTx, claims []dedup.Claim) error {
			for i, c := range claims {
				if c.Verdict == dedup.First {
					t.Errorf("after a sweep %v, claimed before, is new again", done[i].key)
				}
			}
			return errUndo
		})
	})
	if !errors.Is(err, errUndo) {
		t.Error(err)
	}
}

// record returns the record for m's next delivery, with any of its consumer's windows.
func (h *history[TTx]) record(m *message) dedup.Record {
	windows := []time.Duration{time.Hour, 2 * time.Hour, 26 * time.Hour}
	if m.key.Consumer == quiet {
		windows = []time.Duration{9000 * time.Hour, 10000 * time.Hour}
	}
	r := recordAt("", m.born.Add(-h.aged), windows[h.random.IntN(len(windows))])
	r.Key = m.key
	return r
}
