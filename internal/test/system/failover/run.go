//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/txonce/txonce/internal/test/spawn"
)

// found are the figures.
type found struct {
	Seed                          uint64
	Failovers, Backups, Restarts  int
	Kills, Freezes                int
	Killers, Parked               int
	Messages                      int
	EffectsLost                   int `json:"effects_taken_back"` // by faults of the database, at least
	Rewinds                       int
	ReadAgain                     int `json:"read_again"`
	Lost, Doubled                 int
	SlowestSeconds, MedianSeconds float64
	Seconds                       float64 `json:"seconds"` // of the run
	OK                            bool
}

func (f *found) String() string {
	return fmt.Sprintf(`
%d failovers, %d backups and %d restarts of the database, %d kills and %d freezes of workers (seed %d)
%d messages were sent. The database lost %d effects or more of messages that were acknowledged.
%d times a partition was read again, %d messages in all; all effects were there again after %.1f s (median) and %.1f s (longest).
lost %d, doubled %d; %d messages killed their processes, and %d are parked
`, f.Failovers, f.Backups, f.Restarts, f.Kills, f.Freezes, f.Seed, f.Messages, f.EffectsLost, f.Rewinds, f.ReadAgain,
		f.MedianSeconds, f.SlowestSeconds, f.Lost, f.Doubled, f.Killers, f.Parked)
}

// scene is one run.
type scene struct {
	o      options
	out    io.Writer
	begun  time.Time
	random *rand.Rand
	db     *database
	load   *load
	team   []*spawn.Process[report]

	mu      sync.Mutex
	rewinds []report
	ended   []string // workers that ended by themselves, and why
	stops   bool
	found   found
	took    []time.Duration
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) (_ *found, err error) {
	s := &scene{o: o, out: stdout, begun: time.Now(), random: rand.New(rand.NewPCG(o.seed, 1)), found: found{Seed: o.seed}} //nolint:gosec // a plan that can be repeated
	s.print("starting a %s; seed %d", o.database, o.seed)
	if s.db, err = openDatabase(ctx, o.database); err != nil {
		return nil, err
	}
	defer s.db.Close()
	if s.load, err = openLoad(ctx, o, fmt.Sprintf("failover-%d-%d", o.seed, time.Now().UnixMilli())); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.load.Close()) }()
	for i := range o.workers {
		s.team = append(s.team, &spawn.Process[report]{})
		if err := s.start(i); err != nil {
			return nil, err
		}
	}
	defer s.stop()
	loading, done := context.WithCancel(ctx)
	sending := make(chan error, 1)
	go func() { sending <- s.load.run(loading, o.rate, o.killers, o.apart) }()
	err = s.faults(ctx)
	done()
	if err = errors.Join(err, <-sending); err == nil {
		err = s.caughtUp(ctx, int(s.load.sent.Load()))
	}
	if ctx.Err() == nil {
		err = errors.Join(err, s.audit(ctx))
	}
	if o.verbose || err != nil || !s.found.OK {
		s.logs(stderr)
	}
	s.found.Seconds = time.Since(s.begun).Seconds()
	return &s.found, err
}

// faults applies all faults, in random order.
func (s *scene) faults(ctx context.Context) error {
	var plan []string
	for kind, n := range map[string]int{"failover": s.o.failovers, "backup": s.o.backups, "restart": s.o.restarts} {
		plan = append(plan, slices.Repeat([]string{kind}, n)...)
	}
	slices.Sort(plan)
	s.random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	if err := s.caughtUp(ctx, s.o.rate); err != nil {
		return err
	}
	for i, kind := range plan {
		if err := s.fault(ctx, i+1, kind); err != nil || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
	}
	return nil
}

func (s *scene) fault(ctx context.Context, n int, kind string) (err error) {
	lag := time.Duration(20+s.random.IntN(781)) * time.Millisecond
	victim := -1
	if s.random.IntN(3) == 0 && !s.o.broken { // a worker that is killed has committed no offset yet of the latest messages
		victim = s.random.IntN(len(s.team))
	}
	s.mu.Lock()
	s.rewinds = nil
	s.mu.Unlock()
	before := 0
	running := func() error {
		if s.o.broken {
			wait(ctx, 3*time.Second) // the offsets of what is lost must be committed
		}
		wait(ctx, time.Duration(500+s.random.IntN(1500))*time.Millisecond)
		if victim >= 0 && s.random.IntN(2) == 0 { // before the database fails, else after it
			s.kill(victim)
			victim = -1
		}
		return nil
	}
	count := func() (err error) {
		before, _, err = s.db.effects(ctx, int(s.load.sent.Load()))
		return err
	}
	what := kind
	switch kind {
	case "failover":
		what = fmt.Sprintf("failover, lag %3d ms", lag.Milliseconds())
		s.found.Failovers++
		err = s.db.failover(ctx, lag, running, count)
	case "backup":
		s.found.Backups++
		err = s.db.backup(ctx, func() error { return errors.Join(running(), count()) })
	case "restart":
		s.found.Restarts++
		if err = errors.Join(running(), count()); err == nil {
			err = s.db.restart(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("fault %d, %s: %w", n, kind, err)
	}
	began := time.Now()
	upTo := int(s.load.sent.Load())
	after, _, err := s.db.effects(ctx, upTo)
	if err != nil {
		return err
	}
	lost := max(0, before-after)
	s.found.EffectsLost += lost
	if victim >= 0 {
		s.kill(victim)
	}
	if err := s.caughtUp(ctx, upTo); err != nil {
		return fmt.Errorf("fault %d, %s: %w", n, what, err)
	}
	took := time.Since(began)
	s.took = append(s.took, took)
	s.print("%3d: %-20s  %4d or more effects lost, all there again after %4.1f s; read again: %s", n, what, lost,
		took.Seconds(), s.readAgain())
	return nil
}

// readAgain describes the rewinds since the last fault.
func (s *scene) readAgain() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text []string
	for _, r := range s.rewinds {
		s.found.Rewinds++
		s.found.ReadAgain += r.Messages
		text = append(text, fmt.Sprintf("%d from %d (%d)", r.Partition, r.From, r.Messages))
	}
	slices.Sort(text)
	if len(text) == 0 {
		return "nothing"
	}
	return "partition " + strings.Join(text, ", ")
}

// caughtUp waits until the first n messages have their effects.
func (s *scene) caughtUp(ctx context.Context, n int) error {
	deadline := time.Now().Add(s.o.patience)
	for {
		has, _, err := s.db.effects(ctx, n)
		switch {
		case err == nil && has >= n:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return errors.Join(err, fmt.Errorf("%d of %d messages have no effect after %v", n-has, n, s.o.patience))
		}
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		if len(ended) > 0 {
			return fmt.Errorf("a worker has ended: %s", strings.Join(ended, "; "))
		}
		wait(ctx, 50*time.Millisecond)
	}
}

func (s *scene) audit(ctx context.Context) error {
	n := int(s.load.sent.Load())
	has, all, err := s.db.effects(ctx, n)
	if err != nil {
		return err
	}
	f := &s.found
	f.Messages, f.Lost, f.Doubled = n, n-has, all-has
	if slices.Sort(s.took); len(s.took) > 0 {
		f.MedianSeconds, f.SlowestSeconds = s.took[len(s.took)/2].Seconds(), s.took[len(s.took)-1].Seconds()
	}
	f.Killers = s.o.killers
	f.Parked, err = s.parked(ctx)
	f.OK = f.Lost == 0 && f.Doubled == 0 && f.Parked == f.Killers
	return err
}

// parked waits until as many messages are parked as kill their processes, and returns how many there are.
func (s *scene) parked(ctx context.Context) (n int, err error) {
	for deadline := time.Now().Add(s.o.patience); ; wait(ctx, 50*time.Millisecond) {
		n, err = s.db.parked(ctx)
		if err == nil && n >= s.o.killers || ctx.Err() != nil || time.Now().After(deadline) {
			return n, err
		}
	}
}

// start starts worker i.
func (s *scene) start(i int) error {
	name := fmt.Sprint("worker-", i)
	return s.team[i].Start(name, workerCommand, settings{
		Name: name, Kind: s.o.database, Database: s.db.DSN(), Topic: s.load.topic, Kafka: s.o.kafka,
		Cooperative: s.o.cooperative, Broken: s.o.broken, MaxUnfinished: s.o.unfinished,
	}, func(r report) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.End != "" {
			s.ended = append(s.ended, name+": "+r.End)
			return
		}
		s.rewinds = append(s.rewinds, r)
	}, func(error) {
		s.mu.Lock()
		killed := !s.stops && len(s.ended) == 0
		s.mu.Unlock()
		if killed {
			_ = s.start(i)
		}
	})
}

// kill ends worker i with SIGKILL; it is started again. With -freeze most workers stop for a while instead, and go on as if
// nothing had been.
func (s *scene) kill(i int) {
	if s.o.freeze && s.random.IntN(3) > 0 {
		s.found.Freezes++
		s.team[i].Signal(syscall.SIGSTOP)
		time.AfterFunc(time.Duration(1+s.random.IntN(16))*time.Second, func() { s.team[i].Signal(syscall.SIGCONT) })
		return
	}
	s.found.Kills++
	s.team[i].Signal(syscall.SIGKILL)
}

func (s *scene) stop() {
	s.mu.Lock()
	s.stops = true
	s.mu.Unlock()
	for _, p := range s.team {
		p.Signal(syscall.SIGKILL)
	}
}

func (s *scene) logs(out io.Writer) {
	for i, p := range s.team {
		fmt.Fprintf(out, "the end of the log of worker-%d:\n%s\n", i, p.Log.String())
	}
}

func (s *scene) print(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.1f s  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}
