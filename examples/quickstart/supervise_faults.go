package main

import (
	"time"
)

// complement starts the dynamic worker, unless it is there or has been. That is after the first kill, which is certain to come early:
// until then the static workers have all there is, and each stops inside a handler after its first few messages.
func (s *supervisor) complement() error {
	if s.running[dynamicName] != nil || s.left {
		return nil
	}
	return s.start(dynamicName, 0)
}

// strike kills a static worker: where it is, or inside the handler of its next new message. The planned kills go first. It spares
// one that has finished nothing yet if it struck the one before that early too: where a worker takes longer to start than until
// the next strike, nothing would ever be done.
func (s *supervisor) strike(k kill) {
	p := s.running[staticName(k.worker)]
	if s.kills == 0 || p == nil || p.doom != "" || !p.worked && s.idled[p.Name] {
		return
	}
	p.doom = "wherever it was"
	if !k.inside {
		p.kill()
		return
	}
	p.halt()
	time.AfterFunc(haltPatience, p.kill) // where nothing new comes
}

// mayFreeze stops a static worker that is at work, once in a run, and reports whether it has.
func (s *supervisor) mayFreeze() bool {
	if !s.freeze || s.freezes > 0 || s.kills == 0 || s.watch.share() < freezeAt {
		return false
	}
	for i := range statics {
		if p := s.running[staticName(i)]; p != nil && p.joined && p.doom == "" {
			s.say.print("%s is frozen (SIGSTOP) for %v, %s", p.Name, frozenFor, s.watch.at())
			p.freeze()
			s.frozen = p
			s.freezes++
			return true
		}
	}
	return false
}

// thaw lets the frozen worker go on, if it still lives.
func (s *supervisor) thaw() {
	if p := s.frozen; p != nil && s.running[p.Name] == p {
		s.say.print("%s goes on (SIGCONT), %s", p.Name, s.watch.at())
		p.thaw()
	}
	s.frozen = nil
}
