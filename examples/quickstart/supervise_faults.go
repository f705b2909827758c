package main

import (
	"errors"
	"time"
)

// complement starts the dynamic worker, unless it is there or has been. That is after the first kill, which is certain to come early:
// until then the static workers have all there is, and each stops inside a handler after its first few messages. The run is not
// complete before it has joined: however slowly it starts, it takes part.
func (s *supervisor) complement() error {
	if s.running[dynamicName] != nil || s.left {
		return nil
	}
	s.awaited = true
	return s.start(dynamicName, 0)
}

// revive starts a worker again that was killed. On a queue it holds it back until the dynamic one has joined, which is by its first
// message: those that live would have emptied the queue by then, now they all are killed before that. To a group of Kafka one can
// come when nothing is left too, while it would wait for a dead member until the session timeout.
func (s *supervisor) revive(name string) error {
	if s.awaited && s.template.Group == "" {
		s.held = append(s.held, name)
		return nil
	}
	return s.start(name, 0)
}

// deposed reports whether a worker ended because its name is another's: its predecessor's, which was killed, and whose last request to
// join the group was answered after its own.
func (s *supervisor) deposed(p *process) bool {
	_, succeeds := s.idled[p.Name]
	return succeeds && p.cmd.ProcessState.ExitCode() == fencedCode
}

// release starts what was held back: the dynamic worker has joined.
func (s *supervisor) release() (err error) {
	s.awaited = false
	for _, name := range s.held {
		err = errors.Join(err, s.start(name, 0))
	}
	s.held = nil
	return err
}

// dismiss tells the dynamic worker to leave, once that is due: not before the freeze, for which there may be no other.
func (s *supervisor) dismiss() {
	if p := s.running[dynamicName]; p != nil && p.joined && !s.left && !s.freezeDue() && s.watch.share() >= s.plan.kills.leave {
		s.left = true
		s.say.print("%s is told to stop (SIGTERM), %s", p.Name, s.watch.at())
		p.terminate()
	}
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

// mayFreeze stops a worker that is at work, once in a run, and reports whether it has. It is a static one, or else the dynamic one: on a
// queue the others may still be starting when that one has finished everything, and would then get nothing any more.
func (s *supervisor) mayFreeze() bool {
	if !s.freezeDue() || s.watch.share() < freezeAt {
		return false
	}
	for i := range statics + 1 { // the last is the dynamic one
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

// freezeDue holds from the first kill until the freeze: however late the supervisor is with it, the run is not complete without.
func (s *supervisor) freezeDue() bool { return s.freeze && s.freezes == 0 && s.kills > 0 }

// thaw lets the frozen worker go on, if it still lives.
func (s *supervisor) thaw() {
	if p := s.frozen; p != nil && s.running[p.Name] == p {
		s.say.print("%s goes on (SIGCONT), %s", p.Name, s.watch.at())
		p.thaw()
	}
	s.frozen = nil
}
