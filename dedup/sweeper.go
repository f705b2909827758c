package dedup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"
)

// SweeperConfig configures a Sweeper.
type SweeperConfig struct {
	// Store is what to sweep. Required; all stores of this module are Purgers.
	Store Purger

	// Every is the pause between the end of one pass over the table and the next. Defaults to one minute.
	Every time.Duration

	// Limit is how many keys one short transaction forgets at the most. Defaults to 1000.
	Limit int

	// Lease is how long after this sweeper's last transaction others leave the work to it. It should be longer than any
	// rest. Defaults to five times Every.
	Lease time.Duration

	// AlarmAfter is how late keys may be forgotten. A pass that takes that long, or sweepers that did not run, are late.
	// Nothing is lost by it but disk space. More than Every. Defaults to an hour, or ten times Every where that is more.
	AlarmAfter time.Duration

	// ConfirmClock is asked when the database's clock is ahead of expected, which is what it should show, by more than
	// ClockMargin. A clock that jumps ahead expires keys too early, and what is delivered again then runs twice. The sweeper
	// forgets nothing and asks again until ConfirmClock returns true: once a person has made sure that the new time is right, or
	// that nothing that old can be delivered any more. It then goes on from the new time. Where the clock is set back the sweeper goes on by itself.
	//
	// Only a sweeper that runs can tell: what it expects is the clock that it saw last and the time since, by this machine's clock. A
	// program that was just started takes the database's clock as it is, since the database itself does not say how long nobody swept.
	// So do not restart the program before a clock that is wrong is set right. A machine that was suspended asks too.
	// It runs on the goroutine of Run and should not block. Defaults to one that returns false.
	ConfirmClock func(expected, clock time.Time) bool

	// OnAlarm is called when keys are forgotten later than AlarmAfter, once in a pass, and whenever a Purge fails. It
	// should not block. Defaults to nothing but the log.
	OnAlarm func(Alarm)

	// Logger gets alarms as warnings and errors, and a line for each pass that forgot something. Defaults to slog.Default().
	Logger *slog.Logger
}

// Alarm is what SweeperConfig.OnAlarm gets: Lag, or Err and Failures.
type Alarm struct {
	Lag      time.Duration // how long keys had been expired when they were forgotten
	Err      error         // why Purge failed; the sweeper tries again
	Failures int           // in a row
}

// ClockMargin is how far the database's clock may be ahead of what a Sweeper expects.
const ClockMargin = 10 * time.Minute

// Sweeper forgets expired keys in the background. Run one on every node: one at a time is active, and another takes over
// when its lease runs out. It takes at most a tenth of one connection's time, however much there is to do.
type Sweeper struct {
	cfg   SweeperConfig
	sweep Sweep
	clock sweepClock // only Run uses it
}

// What is left to the sweeper is nine tenths of the time and more. Forgetting at full speed halves the rate of claims.
// leastRest keeps it from spinning where the clock is coarser than a Purge.
const (
	restFactor = 9
	leastRest  = 5 * time.Millisecond
)

// purgeTimeout bounds one Purge, for connections that hang. What it cuts off has forgotten nothing.
const purgeTimeout = time.Minute

// Pauses after failures in a row grow from the least to the most.
const (
	leastBackoff = time.Second
	mostBackoff  = time.Minute
)

// NewSweeper returns a Sweeper; Run starts it.
func NewSweeper(cfg SweeperConfig) (*Sweeper, error) {
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	cfg.Limit = cmp.Or(cfg.Limit, 1000)
	cfg.Lease = cmp.Or(cfg.Lease, 5*cfg.Every)
	cfg.AlarmAfter = cmp.Or(cfg.AlarmAfter, max(time.Hour, 10*cfg.Every))
	switch {
	case cfg.Store == nil:
		return nil, errors.New("dedup: SweeperConfig.Store is required")
	case cfg.Every < 0:
		return nil, fmt.Errorf("dedup: SweeperConfig.Every is negative: %v", cfg.Every)
	case cfg.Limit < 0:
		return nil, fmt.Errorf("dedup: SweeperConfig.Limit is negative: %d", cfg.Limit)
	case cfg.Lease <= cfg.Every:
		return nil, fmt.Errorf("dedup: SweeperConfig.Lease %v is not longer than Every %v: sweepers would take turns", cfg.Lease, cfg.Every)
	case cfg.AlarmAfter <= cfg.Every:
		return nil, fmt.Errorf("dedup: SweeperConfig.AlarmAfter %v is not longer than Every %v: every pass would be late", cfg.AlarmAfter, cfg.Every)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.ConfirmClock == nil {
		cfg.ConfirmClock = func(time.Time, time.Time) bool { return false }
	}
	if cfg.OnAlarm == nil {
		cfg.OnAlarm = func(Alarm) {}
	}
	return &Sweeper{cfg: cfg, sweep: Sweep{Owner: rand.Text(), Lease: cfg.Lease, Limit: cfg.Limit}}, nil
}

// Run sweeps until ctx ends, and then returns nil. It never gives up: a fault of the database is reported and waited out.
// Call it once at a time. A crash at any moment leaves keys that the next sweep forgets.
func (s *Sweeper) Run(ctx context.Context) error {
	var p sweepPass
	for ctx.Err() == nil {
		began := time.Now()
		rest := s.step(ctx, &p)
		wait(ctx, max(rest, restFactor*time.Since(began), leastRest))
	}
	return nil
}

// step is one Purge. It returns how long to rest at least.
func (s *Sweeper) step(ctx context.Context, p *sweepPass) (rest time.Duration) {
	swept, err := s.purge(ctx)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		p.failures++
		s.failed(err, p.failures)
		return backoff(p.failures)
	case swept.Busy:
		*p = sweepPass{}
		return jitter(s.cfg.Every) // nodes that were started together need not ask together
	}
	p.add(swept)
	s.late(p)
	if !swept.Done {
		return 0
	}
	s.finished(*p)
	*p = sweepPass{}
	return s.cfg.Every
}

func (s *Sweeper) purge(ctx context.Context) (SweepResult, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	sweep, asked := s.sweep, time.Now()
	expected := s.clock.expected(asked)
	if !expected.IsZero() {
		sweep.Latest = expected.Add(ClockMargin)
	}
	swept, err := s.cfg.Store.Purge(ctx, sweep)
	switch {
	case errors.Is(err, ErrClock) && s.cfg.ConfirmClock(expected, swept.Clock):
		s.cfg.Logger.Warn("dedup: the database's clock was confirmed", "expected", expected, "clock", swept.Clock)
		s.clock = sweepClock{at: swept.Clock, seen: asked}
		sweep.Latest = swept.Clock.Add(ClockMargin)
		return s.cfg.Store.Purge(ctx, sweep)
	case err == nil && !swept.Clock.IsZero():
		s.clock = sweepClock{at: swept.Clock, seen: asked}
	}
	return swept, err
}

// sweepClock is the database's clock as a sweeper saw it last.
type sweepClock struct {
	at   time.Time // by the database
	seen time.Time // by this machine, before it asked
}

// expected is what the database's clock should show by now; zero: nothing is known.
func (c sweepClock) expected(now time.Time) time.Time {
	if c.at.IsZero() {
		return time.Time{}
	}
	return c.at.Add(now.Sub(c.seen)) // by the monotonic clock
}

// ClockAhead is for stores: it is the error of a Purge at clock, the database's, if that is after by.Latest.
func (by Sweep) ClockAhead(clock time.Time) error {
	if by.Latest.IsZero() || !clock.After(by.Latest) {
		return nil
	}
	return fmt.Errorf("%w: it shows %v, and should show no more than %v; nothing is forgotten until it is set right, or SweeperConfig.ConfirmClock says that it is right",
		ErrClock, clock.UTC().Format(time.RFC3339), by.Latest.UTC().Format(time.RFC3339))
}

// sweepPass is one way through the table.
type sweepPass struct {
	keys     int
	lag      time.Duration
	alarmed  bool
	failures int // in a row
}

func (p *sweepPass) add(swept SweepResult) {
	p.failures = 0
	p.keys += swept.Keys
	p.lag = max(p.lag, swept.Lag)
}

func (s *Sweeper) late(p *sweepPass) {
	if p.alarmed || p.lag <= s.cfg.AlarmAfter {
		return
	}
	p.alarmed = true
	s.cfg.Logger.Warn("dedup: sweeper has fallen behind", "lag", p.lag, "alarm_after", s.cfg.AlarmAfter)
	s.cfg.OnAlarm(Alarm{Lag: p.lag})
}

func (s *Sweeper) finished(p sweepPass) {
	if p.keys > 0 {
		s.cfg.Logger.Info("dedup: swept", "keys", p.keys, "lag", p.lag)
	}
}

func (s *Sweeper) failed(err error, failures int) {
	s.cfg.Logger.Error("dedup: sweep failed, will try again", "failures", failures, "error", err)
	s.cfg.OnAlarm(Alarm{Err: err, Failures: failures})
}

// backoff is between half and all of what doubles with each failure, up to the most.
func backoff(failures int) time.Duration {
	d := leastBackoff << min(failures-1, 10)
	return jitter(min(d, mostBackoff))
}

// jitter is between half of d and d.
func jitter(d time.Duration) time.Duration {
	return d/2 + mathrand.N(d/2+1)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
