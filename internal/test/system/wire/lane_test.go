package wire

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/outbox"
)

// lane is like a process: it has its own connections, through its own proxy.
type lane struct {
	name  string
	role  *role
	codes []string // errors of the server
	proxy *wireproxy.Proxy
	node  node   // nil: a relay
	most  int    // messages of a case
	reset func() // closes the connections that are idle

	inFlight atomic.Int64 // messages of the case that are not done

	mu     sync.Mutex
	shot   *shot // of the case that runs
	trace  []step
	topics map[string]bool // of the outbox messages that this relay has published since arm
}

// step is a frame of a case, and what was done to it.
type step struct {
	at       time.Time
	boundary string
	frame    wireproxy.Frame
	does     wireproxy.Action
}

func (s step) String() string {
	line := fmt.Sprintf("%s [%s] %v", s.at.Format("05.000"), s.boundary, s.frame)
	if s.does.Kind != wireproxy.Forward {
		line += fmt.Sprintf("  <<< %v %v %s", s.does.Kind, s.does.For, s.does.Code)
	}
	return line
}

// shot is the fault of a case.
type shot struct {
	cell  cell
	skip  int // so many frames of the boundary pass first
	does  wireproxy.Action
	fired string      // the frame
	done  atomic.Bool // the proxy has done all of it
	next  *shot       // after this one; nil: none
}

// all returns the shots of a case that the proxy has carried out.
func (s *shot) all() (done []*shot) {
	for ; s != nil && s.fired != ""; s = s.next {
		if s.done.Load() {
			done = append(done, s)
		}
	}
	return done
}

// newShot draws the moment and the details.
func newShot(rng *rand.Rand, c cell, codes []string, late sync.Locker) *shot {
	s := &shot{cell: c, does: wireproxy.Action{Kind: c.kind, Late: late}}
	s.does.Done = func() { s.done.Store(true) }
	for rng.IntN(2) == 0 && s.skip < 6 {
		s.skip++
	}
	s.does.For = time.Duration(1 + rng.Int64N(int64(longest)))
	if rng.IntN(5) == 0 { // longer than claimTimeout
		s.does.For += claimTimeout
	}
	if len(codes) > 0 {
		s.does.Code = codes[rng.IntN(len(codes))]
	}
	return s
}

// arm begins a case.
func (l *lane) arm(s *shot) {
	l.proxy.Arm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shot, l.trace, l.topics = s, nil, map[string]bool{}
}

// disarm ends it, and returns what was sent, and the topics that this relay has published.
func (l *lane) disarm() (trace []step, topics map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	topics, l.shot, l.topics = l.topics, nil, nil // the relay goes on, and notes its topics
	return l.trace, topics
}

// tried reports whether the fault of the case has fired, and this relay has published a message of the topic.
func (l *lane) tried(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shot != nil && l.shot.fired != "" && l.topics[topic]
}

// publishing is a relay's publisher. It notes which topics this relay publishes.
type publishing struct {
	*lane
	outbox.Publisher
}

// Publish publishes.
func (p publishing) Publish(ctx context.Context, msgs []outbox.Message) []error {
	p.mu.Lock()
	for _, m := range msgs {
		if p.topics != nil {
			p.topics[m.Topic] = true
		}
	}
	p.mu.Unlock()
	return p.Publisher.Publish(ctx, msgs)
}

const longestTrace = 400

// decide is the proxy's Config.Decide.
func (l *lane) decide(f wireproxy.Frame) wireproxy.Action {
	name := l.role.boundaryOf(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.shoot(f, name)
	if l.shot != nil && len(l.trace) < longestTrace {
		l.trace = append(l.trace, step{time.Now(), name, f, a})
	}
	return a
}

func (l *lane) shoot(f wireproxy.Frame, name string) (none wireproxy.Action) {
	s := l.shot
	for s != nil && s.fired != "" {
		s = s.next
	}
	if s == nil || l.inFlight.Load() == 0 || name != s.cell.boundary ||
		f.FromServer != s.cell.answered || !f.Allows(s.cell.kind) {
		return none
	}
	if s.skip > 0 {
		s.skip--
		return none
	}
	s.fired = f.String()
	return s.does
}
