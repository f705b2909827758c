package child

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Group is a number of children. When one ends, another is started in its place.
type Group struct {
	t    testing.TB
	args func(nth int) []string
	kept sync.WaitGroup

	mu      sync.Mutex
	all     []*Process
	started int
	took    time.Duration // by the last start
	ended   int           // before Stop
	stopped bool
}

// StartGroup starts n children. args returns the arguments of the nth child that is started, from 0. Call Stop at the
// end.
func StartGroup(t testing.TB, n int, args func(nth int) []string) *Group {
	g := &Group{t: t, args: args, all: make([]*Process, n)}
	for i := range n {
		if p := g.start(i); p != nil {
			g.kept.Go(func() { g.keep(i, p) })
		}
	}
	return g
}

// start returns nil after Stop, and if the child does not start.
func (g *Group) start(i int) *Process {
	g.mu.Lock()
	nth := g.started
	g.started++
	g.mu.Unlock()
	began := time.Now()
	p, err := Start(g.args(nth)...)
	if err != nil {
		g.t.Error(err)
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.took = time.Since(began)
	if g.stopped {
		p.Kill()
		return nil
	}
	g.all[i] = p
	return p
}

func (g *Group) keep(i int, p *Process) {
	for p != nil {
		<-p.ended
		p.Kill() // closes its pipe
		g.mu.Lock()
		stopped := g.stopped
		if !stopped {
			g.ended++
		}
		g.mu.Unlock()
		if stopped {
			return
		}
		p = g.start(i)
	}
}

// Any returns one of the children. It may have ended.
func (g *Group) Any() *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[rand.IntN(len(g.all))]
}

// KillSome kills the children in turn, at random times, until ctx ends. On a busy machine, where a child takes long to
// start, it kills more seldom: otherwise the children would do little more than start.
func (g *Group) KillSome(ctx context.Context) {
	for i := 0; ; i = (i + 1) % len(g.all) {
		g.mu.Lock()
		took := g.took
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(took + time.Duration(50+rand.IntN(200))*time.Millisecond):
		}
		g.mu.Lock()
		victim := g.all[i]
		g.mu.Unlock()
		victim.Kill()
	}
}

// Stop ends all children, and returns how many had ended before. It may be called twice.
func (g *Group) Stop() (ended int) {
	g.mu.Lock()
	g.stopped = true
	for _, p := range g.all {
		if p != nil {
			p.Kill()
		}
	}
	g.mu.Unlock()
	g.kept.Wait()
	return g.ended
}

// Thaw lets children that have stopped themselves (SIGSTOP) go on after that time, until ctx ends. It returns how many
// times it did.
func (g *Group) Thaw(ctx context.Context, after time.Duration) (n int) {
	since := map[*Process]time.Time{}
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return n
		case <-tick.C:
		}
		g.mu.Lock()
		all := slices.Clone(g.all)
		g.mu.Unlock()
		for _, p := range all {
			switch {
			case p == nil || !p.stopped():
				delete(since, p)
			case since[p].IsZero():
				since[p] = time.Now()
			case time.Since(since[p]) >= after:
				n++
				delete(since, p)
				_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have been killed
			}
		}
	}
}
