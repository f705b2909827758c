package main

import (
	"context"
	"errors"
	"time"
)

// startDynamic starts the dynamic worker after the first kill, unless it is running or has left. That kill is certain
// to come early: until then the static workers share all deliveries, and each stops inside a handler after its first
// few messages. The run is complete only after the dynamic worker has joined, however slowly it starts.
func (s *supervisor) startDynamic() error {
	if s.running[dynamicName] != nil || s.left {
		return nil
	}
	s.awaited = true
	return s.start(dynamicName, 0)
}

// restart restarts a killed worker. On a queue it waits until the dynamic worker has joined, that is, has got a
// message: otherwise the restarted workers could empty the queue before that. A Kafka group can be joined after
// everything is consumed, and would wait for a missing static member until the session timeout.
func (s *supervisor) restart(name string) error {
	if s.awaited && s.template.Group == "" {
		s.held = append(s.held, name)
		return nil
	}
	return s.start(name, 0)
}

// fenced reports whether a worker ended because Kafka fenced it. This happens when the last join request of its killed
// predecessor, which has the same instance ID, was answered after its own.
func (s *supervisor) fenced(p *process) bool {
	_, succeeds := s.idled[p.Name]
	return succeeds && p.State().ExitCode() == fencedCode
}

// startHeld starts the workers that were held back until the dynamic worker had joined.
func (s *supervisor) startHeld() (err error) {
	s.awaited = false
	for _, name := range s.held {
		err = errors.Join(err, s.start(name, 0))
	}
	s.held = nil
	return err
}

// stopDynamic tells the dynamic worker to leave once that is due, but not before the freeze, which may need it.
func (s *supervisor) stopDynamic() {
	if p := s.running[dynamicName]; p != nil && p.joined && !s.left && !s.freezeDue() &&
		s.watch.share() >= s.plan.kills.leave {
		s.left = true
		s.say.print("%s is told to stop (SIGTERM), %s", p.Name, s.watch.at())
		p.terminate()
	}
}

// killStatic kills a static worker: at once, or inside the handler of its next new message. The planned kills come
// first. It spares a worker that has finished nothing if the previous one of that name had finished nothing either:
// otherwise, if starting takes longer than the interval between kills, the run would never progress. It also spares all
// workers while a message has been tried alone by two that were killed: a third kill would park that message, although
// it is innocent.
func (s *supervisor) killStatic(ctx context.Context, k kill) error {
	p := s.running[staticName(k.worker)]
	if s.kills == 0 || p == nil || p.killedAt != "" || !p.worked && s.idled[p.Name] {
		return nil
	}
	if trials, err := s.trials(ctx); err != nil || trials >= 2 {
		return err
	}
	p.killedAt = "wherever it was"
	if !k.inside {
		p.kill()
		return nil
	}
	p.halt()
	time.AfterFunc(haltPatience, p.kill) // in case no new message comes
	return nil
}

// mayFreeze freezes a working worker once per run, and reports whether it did. It prefers a static worker. On a queue
// the static workers may still be starting when the dynamic one finishes everything, so it may also freeze the dynamic
// one.
func (s *supervisor) mayFreeze() bool {
	if !s.freezeDue() || s.watch.share() < freezeAt {
		return false
	}
	for i := range statics + 1 { // the last is the dynamic worker
		if p := s.running[staticName(i)]; p != nil && p.joined && p.killedAt == "" {
			s.say.print("%s is frozen (SIGSTOP) for %v, %s", p.Name, frozenFor, s.watch.at())
			p.freeze()
			s.frozen = p
			s.freezes++
			return true
		}
	}
	return false
}

// freezeDue is true from the first kill until the freeze. The run is not complete before the freeze.
func (s *supervisor) freezeDue() bool { return s.freeze && s.freezes == 0 && s.kills > 0 }

// thaw resumes the frozen worker if it still runs.
func (s *supervisor) thaw() {
	if p := s.frozen; p != nil && s.running[p.Name] == p {
		s.say.print("%s goes on (SIGCONT), %s", p.Name, s.watch.at())
		p.thaw()
	}
	s.frozen = nil
}
