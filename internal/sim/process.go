package sim

import (
	"fmt"
	"slices"
	"time"
)

// Process is a process of a World, until it crashes.
type Process struct {
	Name string

	// OnCrash is called by Crash, when nothing that the process does has an effect any more. OnFreeze is called when it
	// begins to stand still, and OnStop when it is told to stop.
	OnCrash  func()
	OnFreeze func(d time.Duration)
	OnStop   func()

	world  *World
	number int
	dead   bool
	frozen time.Time // until
	waits  int
}

// NewProcess returns a Process that is named after role and a number.
func (w *World) NewProcess(role string) *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return &Process{Name: fmt.Sprint(role, " ", w.made), world: w, number: w.made}
}

// World returns the process's world.
func (p *Process) World() *World { return p.world }

// At parks the caller at a boundary, and returns what happens there. Where Fault.Action is Gone, the caller must return
// and do nothing more.
func (p *Process) At(boundary, about string) Fault { return p.When(boundary, about, nil) }

// When is At for a caller that does not go on before ready reports true. ready is called while nothing else runs.
func (p *Process) When(boundary, about string, ready func() bool) Fault {
	w := p.world
	w.mu.Lock()
	if p.dead || w.over {
		w.mu.Unlock()
		return Fault{Action: Gone}
	}
	at := &parking{by: p, boundary: boundary, about: about, ready: ready, wake: make(chan Fault, 1)}
	w.parked = append(w.parked, at)
	w.mu.Unlock()
	f := <-at.wake
	if f.Action == "stall" {
		w.stalled(1)
		w.sleep(p.Unlike(f.For))
		w.stalled(-1)
		if p.Dead() {
			return Fault{Action: Gone}
		}
	}
	return f
}

// Crash ends the process.
func (p *Process) Crash() {
	w := p.world
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return
	}
	p.dead = true
	var mine []*parking
	w.parked = slices.DeleteFunc(w.parked, func(q *parking) bool {
		if q.by == p {
			mine = append(mine, q)
		}
		return q.by == p
	})
	w.mu.Unlock()
	w.Trace.note(w, p.Name, "the process has ended")
	if p.OnCrash != nil {
		p.OnCrash()
	}
	for _, q := range mine {
		q.wake <- Fault{Action: Gone}
	}
}

// Dead reports whether the process has crashed, or the run is over.
func (p *Process) Dead() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.dead || p.world.over
}

// Unlike adds to d some nanoseconds that no other wait has.
func (p *Process) Unlike(d time.Duration) time.Duration {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.waits++
	return d + time.Duration(p.waits*101+p.number%101)
}

// Note writes a line into the trace.
func (p *Process) Note(format string, args ...any) {
	if p.world.Trace != nil {
		p.world.Trace.note(p.world, p.Name, fmt.Sprintf(format, args...))
	}
}
