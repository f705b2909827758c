package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

// supervisor runs the workers. It starts them, kills them as planned, and waits until the group has committed
// everything.
type supervisor struct {
	plan     *plan
	broker   broker
	pending  func(context.Context) (int, error) // how many events wait to be published
	trials   func(context.Context) (int, error) // during how many trials of one message a worker was killed
	template settings                           // of every worker
	metrics  *metrics                           // nil: none
	every    time.Duration
	freeze   bool
	verbose  bool
	say      *terminal

	events  chan event
	running map[string]*process // by name
	watch   progress
	kills   int
	samples []sample // of the whole run, for -chart
	awaited bool     // the dynamic worker was started and has not joined yet
	left    bool     // the dynamic worker was told to leave
	freezes int
	frozen  *process        // nil: no worker is frozen
	held    []string        // killed workers that start again after the dynamic one has joined
	again   chan *process   // workers that ended before they had joined and start again
	idled   map[string]bool // by name: the worker was killed before it had finished anything
}

const (
	patience     = 3 * time.Minute        // how long nothing may change before the run is given up
	ending       = 20 * time.Second       // how long a worker may take to stop
	haltPatience = 500 * time.Millisecond // how long to wait for a new message; the worker stops in its handler
	retryPause   = time.Second            // before a worker starts again that ended before it had joined
	frozenFor    = 2 * visibility         // longer than the timeout of any broker here
	freezeAt     = .3                     // share of all deliveries
)

// outcome is the result of the workers' run.
type outcome struct {
	complete bool
	progress progress
	kills    int
	freezes  int
	took     time.Duration // from the start of the first worker until every offset was committed
	drained  time.Duration // from then until every event was published
	idle     time.Duration // how long nothing had changed at the end
	samples  []sample
}

// run returns when everything is committed and published, or nothing has changed for too long. All workers have ended
// by then.
func (s *supervisor) run(ctx context.Context) (outcome, error) {
	s.events = make(chan event, 64)
	s.running = map[string]*process{}
	s.again = make(chan *process, 64)
	s.idled = map[string]bool{}
	start := time.Now()
	s.watch = newProgress(len(s.plan.deliveries), start)
	for halts := s.plan.kills.halts; ; halts = [statics]int{} {
		out, err := s.round(ctx, start, halts)
		err = errors.Join(err, s.stop())
		if err != nil || !out.complete {
			return out, err
		}
		if done, err := s.settled(ctx); err != nil || done {
			return out, err
		}
		s.watch.end = time.Time{}
	}
}

// settled checks again after the workers have ended: RabbitMQ cannot tell what they held.
func (s *supervisor) settled(ctx context.Context) (bool, error) {
	b, unsure := s.broker.(interface {
		Left(ctx context.Context) (int, error)
	})
	if !unsure {
		return true, nil
	}
	left, err := b.Left(ctx)
	if left > 0 {
		s.say.print("%d deliveries that workers held are back: once more", left)
	}
	return left == 0, err
}

// round starts the workers and returns when everything seems to be finished, or nothing changes any more.
func (s *supervisor) round(ctx context.Context, start time.Time, halts [statics]int) (outcome, error) {
	polling, stop := context.WithCancel(ctx)
	polls := make(chan pollResult)
	var poller sync.WaitGroup
	poller.Go(func() { s.poll(polling, polls) })
	complete, err := s.loop(ctx, polls, halts)
	took, idle, drained := time.Since(start), s.watch.idle(time.Now()), time.Duration(0)
	if !s.watch.end.IsZero() {
		took, drained = s.watch.end.Sub(start), time.Since(s.watch.end)
	}
	stop()
	poller.Wait()
	return outcome{
		complete: complete, progress: s.watch, kills: s.kills, freezes: s.freezes, took: took,
		drained: drained, idle: idle, samples: s.samples,
	}, err
}

func (s *supervisor) loop(ctx context.Context, polls <-chan pollResult, halts [statics]int) (complete bool, err error) {
	for i, halt := range halts {
		if err := s.start(staticName(i), halt); err != nil {
			return false, err
		}
	}
	next, stop := iter.Pull(s.plan.kills.Every(s.every))
	defer stop()
	due, _ := next()
	var nextKill <-chan time.Time // nil unless -kill-every is set
	if s.every > 0 {
		nextKill = time.After(due.after)
	}
	var thaw <-chan time.Time
	draw := time.NewTicker(100 * time.Millisecond)
	defer draw.Stop()
	for {
		if s.mayFreeze() {
			thaw = time.After(frozenFor)
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case e := <-s.events:
			if err := s.handle(e); err != nil {
				return false, err
			}
		case p := <-polls:
			if p.err != nil {
				return false, p.err
			}
			s.watch.committed(p.ends, time.Now())
			s.stopDynamic()
			if slices.Equal(p.ends, s.broker.Ends()) && s.watch.relayed(p.pending, time.Now()) && !s.awaited &&
				!s.freezeDue() {
				return true, nil
			}
		case <-thaw:
			s.thaw()
		case p := <-s.again:
			if s.running[p.Name] != nil { // it belongs to an earlier round
				continue
			}
			if err := s.start(p.Name, p.Halt); err != nil { // with its planned kill, which has not happened yet
				return false, err
			}
		case <-nextKill:
			if err := s.killStatic(ctx, due); err != nil {
				return false, err
			}
			due, _ = next()
			nextKill = time.After(due.after)
		case <-draw.C:
			s.say.live(s.watch.line(s.kills))
			s.samples = append(s.samples, sample{time.Since(s.watch.start), s.watch.finished(), s.kills})
			if s.watch.idle(time.Now()) > patience {
				return false, nil
			}
		}
	}
}

func staticName(i int) string { return fmt.Sprintf("worker-%d", i+1) }

// dynamicName is the worker that starts late, leaves early, and does not come back.
var dynamicName = staticName(statics)

func (s *supervisor) start(name string, halt int) error {
	w := s.template
	w.Name, w.Static, w.Halt = name, name != dynamicName, halt
	p, err := start(w, s.verbose, s.events)
	if err == nil {
		s.running[name] = p
	}
	return err
}

// handle handles a report or the end of a process.
func (s *supervisor) handle(e event) error {
	if e.ended {
		return s.processEnded(e)
	}
	s.watch.report(e.report, time.Now())
	s.metrics.report(context.Background(), e.report)
	e.from.joined = e.from.joined || e.report.Joined || e.report.Generation > 0
	e.from.worked = e.from.worked || e.report.Spans != nil || e.report.Finished > 0
	if e.report.Standing != "" && !e.from.terminated {
		e.from.killedAt = "inside the handler of " + e.report.Standing
		e.from.kill()
	}
	s.stopDynamic()
	if e.from.Name == dynamicName && e.from.joined && s.awaited {
		return s.startHeld()
	}
	return nil
}

// processEnded handles the end of a process: it starts a killed worker again and fails on an unexpected end.
func (s *supervisor) processEnded(e event) error {
	p := e.from
	delete(s.running, p.Name)
	switch {
	case p.killedAt != "":
		s.kills++
		s.idled[p.Name] = !p.worked
		s.say.print("%s is killed (SIGKILL) %s, %s", p.Name, p.killedAt, s.watch.at())
		return errors.Join(s.startDynamic(), s.restart(p.Name))
	case !p.terminated && (!p.joined || s.fenced(p)) && s.watch.idle(time.Now()) < patience:
		// a supervisor such as Kubernetes would restart it too
		time.AfterFunc(retryPause, func() { s.again <- p })
	case !p.terminated:
		return fmt.Errorf("%s ended by itself (%s)\n%s", p.Name, p.State(), &p.Log)
	case e.err != nil:
		return fmt.Errorf("%s was told to stop and failed: %w\n%s", p.Name, e.err, &p.Log)
	}
	return nil
}

// stop ends the workers, and kills those that take too long.
func (s *supervisor) stop() (err error) {
	s.thaw()
	for _, p := range s.running {
		if p.killedAt == "" && !p.terminated { // a second SIGTERM would end it without cleaning up
			p.terminate()
		}
	}
	late := time.NewTimer(ending)
	defer late.Stop()
	for len(s.running) > 0 {
		select {
		case e := <-s.events:
			if !e.ended {
				s.watch.report(e.report, time.Now())
				s.metrics.report(context.Background(), e.report)
				if e.report.Standing != "" {
					e.from.killedAt, e.from.terminated = "at the end", false
					e.from.kill()
				}
				continue
			}
			delete(s.running, e.from.Name)
			if e.from.killedAt != "" {
				s.kills++
			}
			if e.from.terminated && e.from.joined && e.err != nil {
				err = errors.Join(err, fmt.Errorf("%s was told to stop and failed: %w\n%s", e.from.Name, e.err,
					&e.from.Log))
			}
		case <-late.C:
			for _, p := range s.running {
				s.say.print("%s takes too long to leave the group and is killed", p.Name)
				p.terminated = false // its failure is expected
				p.kill()
			}
		}
	}
	return err
}
