package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// batch is the work of one worker: it publishes leased messages in waves, so that the next message of a key leaves
// after the one before was confirmed, and then settles all of them in one transaction. It starts waves for maxWaves;
// messages that are left then stay pending. Only the goroutine of handle reads and writes its fields, except errs,
// which calls under way write.
type batch struct {
	session  *session
	relay    *Relay
	stop     context.Context // Run's: after its end no call of Publish starts
	leasedAt time.Time

	outcomes []driver.Outcome // in the order of the leased messages; Returned until there is an answer
	// the publishers' answers, by position in outcomes; ErrNotTried until there is one, and never nil by default
	errs       []error
	queues     []*publisherQueue
	underWay   map[*call]bool
	answered   chan *call
	abandoned  chan struct{} // closed when nothing receives from answered any more
	parkTokens int           // taken from the park budget

	waves          int  // calls started
	outOfTime      bool // maxWaves were over before all keys were published
	firstWave      time.Time
	unavailableErr error // why a publisher cools down
}

// maxWaves is how long a batch starts further waves. A key with many messages would keep the shards of all other keys
// of its batch for as long as publishing its messages one after another takes.
const maxWaves = 100 * time.Millisecond

// A key that has manyLeft messages left after maxWaves is held back for keyPause, but at most once in pauseEvery: so
// the next poll finds the messages of other keys behind them, however many there are.
const (
	manyLeft   = 16
	keyPause   = 100 * time.Millisecond
	pauseEvery = 800 * time.Millisecond
)

// publisherQueue has the keys of a batch whose next message goes to one publisher. The publisher gets one call at a
// time of each batch.
type publisherQueue struct {
	publisher *publisherState
	ready     []*keyMessages
	busy      bool
}

// keyMessages are the messages of one key, or a single message without key.
type keyMessages struct {
	pending []int // positions in outcomes
	sent    int   // how many of pending are in the call under way
}

// pausedKeys remembers when keys were held back by pauseKeys.
type pausedKeys struct {
	mu     sync.Mutex
	latest map[string]time.Time
}

const mostPausedKeys = 1000

// may reports whether key may be held back now, and remembers it.
func (p *pausedKeys) may(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.latest[key]) < pauseEvery {
		return false
	}
	if len(p.latest) >= mostPausedKeys || p.latest == nil {
		p.latest = make(map[string]time.Time) // some are held back again too early
	}
	p.latest[key] = now
	return true
}

// handle publishes and settles msgs. mayHaveMore says that further messages may be due in their shards.
func (s *session) handle(stop context.Context, msgs []driver.Leased, leasedAt time.Time, mayHaveMore bool) report {
	b := &batch{
		session: s, relay: s.relay, stop: stop, leasedAt: leasedAt, outcomes: make([]driver.Outcome, len(msgs)),
		errs:     slices.Repeat([]error{driver.ErrNotTried}, len(msgs)),
		underWay: map[*call]bool{}, answered: make(chan *call), abandoned: make(chan struct{}),
	}
	for i := range msgs {
		b.outcomes[i] = driver.Outcome{Leased: msgs[i]}
	}
	for _, k := range b.byKey() {
		b.enqueue(k)
	}
	b.publishAll()
	if b.outOfTime && mayHaveMore {
		b.pauseKeys()
	}
	settled := b.outcomes[:b.settleOutcomes()]
	rep := b.report(settled)
	if len(settled) < len(b.outcomes) { // the next holder of the shards publishes the others
		rep.overdueCalls = slices.Collect(maps.Keys(b.underWay))
	}
	return rep
}

func (b *batch) byKey() []*keyMessages {
	keys := make([]*keyMessages, 0, len(b.outcomes))
	byKey := make(map[string]*keyMessages, len(b.outcomes))
	each, positions := make([]keyMessages, len(b.outcomes)), make([]int, len(b.outcomes)) // most keys have one message
	for i := range b.outcomes {
		key := b.outcomes[i].OrderingKey
		if k := byKey[key]; k != nil {
			k.pending = append(k.pending, i)
			continue
		}
		positions[i] = i
		k := &each[i]
		k.pending = positions[i : i+1 : i+1]
		keys = append(keys, k)
		if key != "" {
			byKey[key] = k
		}
	}
	return keys
}

// enqueue puts k into the queue of the publisher of its first message. When that message has no publisher, or cannot be
// read, the key's messages stay as they are: Returned.
func (b *batch) enqueue(k *keyMessages) {
	if len(k.pending) == 0 {
		return
	}
	first := k.pending[0]
	if err := b.outcomes[first].Unreadable; err != nil {
		b.parkOrDefer(first, err)
		return
	}
	topic := b.outcomes[first].Topic
	p := b.relay.publishers.of(topic)
	if p == nil {
		err := fmt.Errorf("%w %q", ErrNoPublisher, topic)
		b.deferForTopic(first, b.coolTopicDown(topic, b.leasedAt, err), err)
		return
	}
	i := slices.IndexFunc(b.queues, func(q *publisherQueue) bool { return q.publisher == p })
	if i < 0 {
		i = len(b.queues)
		b.queues = append(b.queues, &publisherQueue{publisher: p})
	}
	b.queues[i].ready = append(b.queues[i].ready, k)
}

// pauseKeys holds back the keys that have many messages left.
func (b *batch) pauseKeys() {
	for _, q := range b.queues {
		for _, k := range q.ready {
			if first := &b.outcomes[k.pending[0]]; len(k.pending) >= manyLeft && first.OrderingKey != "" &&
				b.session.paused.may(first.OrderingKey) {
				first.Delay = keyPause
			}
		}
	}
}

// publishAll returns when nothing more may be published and no call is under way. Calls that do not return within
// Config.Margin after the end of the session are left behind, in b.underWay.
func (b *batch) publishAll() {
	defer close(b.abandoned)
	ended := b.session.work.Done()
	var limit <-chan time.Time
	for {
		for _, q := range b.queues {
			if c := b.startCall(q); c != nil {
				b.underWay[c] = true
			}
		}
		if len(b.underWay) == 0 {
			return
		}
		select {
		case c := <-b.answered: // before what follows, and not as select chooses: see dispatcher.takeReport
			b.onAnswer(c)
			continue
		default:
		}
		select {
		case c := <-b.answered:
			b.onAnswer(c)
		case <-ended:
			ended, limit = nil, time.After(b.relay.cfg.Margin)
		case <-limit:
			return
		}
	}
}

func (b *batch) onAnswer(c *call) {
	delete(b.underWay, c)
	b.takeAnswers(c)
}
