package consumer

import (
	"sync"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
)

// pastsMost limits how many failed messages are remembered. A message that is forgotten only gets some more attempts.
const pastsMost = 10_000

// memory is what a Consumer knows about keys: who holds them, what happened to their messages since they were last
// processed or parked, and whether they are in doubt. The zero value is ready to use, and safe for concurrent use.
//
// Of more than pastsMost failed messages some are forgotten. A doubt never is: a message whose effects may be missing
// would become a duplicate.
type memory struct {
	mu      sync.Mutex
	keys    map[dedup.KeyHash]known
	pasts   int // keys with a past
	faulty  int // keys whose past has Faults
	commits int // messages whose handler ran and whose transaction was committed
}

// known is what is known about one key.
type known struct {
	held    bool         // a call of this process is processing it
	waiters []*keyWaiter // for the end of that
	past    *decide.Past
	doubt   *doubt
}

// set makes k what is known about key. The caller holds mu.
func (m *memory) set(key dedup.KeyHash, k known) {
	switch {
	case !k.held && k.past == nil && k.doubt == nil:
		delete(m.keys, key)
	case m.keys == nil:
		m.keys = map[dedup.KeyHash]known{key: k}
	default:
		m.keys[key] = k
	}
}

// setPast makes p the past of key; nil: it has none. The caller holds mu.
func (m *memory) setPast(key dedup.KeyHash, p *decide.Past) {
	if m.pasts >= pastsMost && p != nil && m.keys[key].past == nil {
		m.evict()
	}
	k := m.keys[key]
	m.count(k.past, -1)
	m.count(p, 1)
	k.past = p
	m.set(key, k)
}

// count counts a past in or out. The caller holds mu.
func (m *memory) count(p *decide.Past, n int) {
	if p == nil {
		return
	}
	m.pasts += n
	if p.Faults > 0 {
		m.faulty += n
	}
}

// evict forgets some past. The caller holds mu.
func (m *memory) evict() {
	for key, k := range m.keys {
		if k.past != nil {
			m.setPast(key, nil)
			return
		}
	}
}

// past returns what happened to the message with key.
func (m *memory) past(key dedup.KeyHash) decide.Past {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pastOf(key)
}

// pastOf is past for a caller that holds mu.
func (m *memory) pastOf(key dedup.KeyHash) decide.Past {
	if p := m.keys[key].past; p != nil {
		return *p
	}
	return decide.Past{}
}

// judge decides about a message that failed with f in a transaction of its own, and remembers that.
func (m *memory) judge(key dedup.KeyHash, f decide.Failure, n decide.Now) decide.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pastOf(key)
	n.Commits, n.Faulty = m.commits, m.faulty
	if p.Faults > 0 {
		n.Faulty--
	}
	v, after := decide.OfMessage(f, p, n)
	if after != p {
		m.setPast(key, &after)
	}
	return v
}

// survived records that this process has tried key alone and has not ended.
func (m *memory) survived(key dedup.KeyHash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pastOf(key)
	p.Survived = true
	m.setPast(key, &p)
}

// committed forgets a message that is committed. ran says that its handler's work was committed now.
func (m *memory) committed(key dedup.KeyHash, ran bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ran {
		m.commits++
	}
	if k := m.keys[key]; k.past != nil || k.doubt != nil {
		m.setPast(key, nil)
		k = m.keys[key]
		k.doubt = nil
		m.set(key, k)
	}
}

// forgetPast forgets what happened to a message that is parked, or that another call has committed.
func (m *memory) forgetPast(key dedup.KeyHash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys[key].past != nil {
		m.setPast(key, nil)
	}
}

// addDoubt records that the message with key is in doubt.
func (m *memory) addDoubt(key dedup.KeyHash, more doubt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[key]
	if before := k.doubt; before != nil && before.sure { // keep what is known about the earlier transaction
		more.ownEffect = more.ownEffect || before.ownEffect
		more.committed = nil // it can answer for one of the two transactions only
	}
	k.doubt = &more
	m.set(key, k)
}

// doubt returns why the message with key is in doubt. ok is false if it is not.
func (m *memory) doubt(key dedup.KeyHash) (d doubt, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.keys[key].doubt; found != nil {
		return *found, true
	}
	return doubt{}, false
}

// forgetDoubt records that the message with key is not in doubt any more.
func (m *memory) forgetDoubt(key dedup.KeyHash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keys[key]; k.doubt != nil {
		k.doubt = nil
		m.set(key, k)
	}
}
