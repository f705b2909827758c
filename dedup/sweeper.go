package dedup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

// SweeperConfig configures a Sweeper.
type SweeperConfig struct {
	// Store is the store to sweep. Required. All stores of this module are Purgers.
	Store Purger

	// Every is the pause between the end of one pass over the table and the beginning of the next.
	//
	// Defaults to one minute.
	Every time.Duration

	// Limit is how many keys one short transaction deletes at most. Stores may delete fewer: on PostgreSQL a
	// transaction reads 32 pages, which hold 3,000 to 4,500 keys, and on SQLite, where claims wait for it, it deletes
	// 1000 keys.
	//
	// Defaults to 5000.
	Limit int

	// Lease is how long after this sweeper's last transaction other sweepers do nothing. It must be longer than Every.
	//
	// Defaults to five times Every.
	Lease time.Duration

	// AlarmAfter is how long after its expiry a key may be deleted without an alarm. A later deletion means that a pass
	// took long, or that no sweeper ran. It only costs disk space. AlarmAfter must be longer than Every.
	//
	// Defaults to an hour, or to ten times Every if that is longer.
	AlarmAfter time.Duration

	// ConfirmClock is called when the database's clock is ahead of expected by more than ten minutes. A clock that
	// jumps ahead expires keys too early, so that messages that are delivered again would run twice. The sweeper
	// deletes nothing and calls ConfirmClock again until it returns true. It should return true after somebody has made
	// sure that the new time is right, or that no message can be delivered any more whose key would expire now. The
	// sweeper then goes on from the new time. If the clock is set back, the sweeper goes on by itself.
	//
	// Only a running sweeper notices a jump: expected is the database's time that it saw last, plus the time since then
	// by this machine's clock. A sweeper that has just been started accepts the database's clock as it is. So set a
	// wrong clock right before you restart the program. ConfirmClock is also called after a machine was suspended. It
	// runs on the goroutine of Run and should not block.
	//
	// Defaults to a function that returns false.
	ConfirmClock func(expected, clock time.Time) bool

	// Archive is called with expired keys before they are deleted, in batches of at most Limit, for those who must keep
	// what was processed for longer than claims do. If it fails or panics, nothing is deleted, OnAlarm is called, and
	// the sweeper tries again. A key may be archived more than once, for example after a crash between Archive and
	// COMMIT: use Expired.Hash and ExpiresAt to recognise it. No transaction is open while Archive runs. Its ctx ends
	// after less than a minute. A batch has the stored results, which the memory must hold: choose Limit accordingly.
	//
	// Every Sweeper on a database needs the same Archive, because any of them may delete a key. txonce_sweep and `txonce
	// sweep` archive nothing. Store must be an Archiver.
	//
	// Defaults to no function: keys are deleted.
	Archive func(ctx context.Context, expired []Expired) error

	// Trace has a hook for metrics. It runs on the goroutine of Run and should not block. A panic of it is logged and
	// has no other effect.
	//
	// Defaults to no hook.
	Trace *SweepTrace

	// OnAlarm is called when keys are deleted later than AlarmAfter, once in a pass, and after each Purge that fails.
	// It runs on the goroutine of Run and should not block.
	//
	// Defaults to no function; alarms are always logged.
	OnAlarm func(Alarm)

	// Logger gets alarms as warnings and errors, and a line for each pass that deleted keys.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// SweepTrace has a hook for what a Sweeper does.
type SweepTrace struct {
	// Swept is called after each Purge; if ConfirmClock had it repeated, once after both.
	Swept func(ctx context.Context, e SweepEvent)
}

// SweepEvent is one Purge.
type SweepEvent struct {
	Result  SweepResult
	Outcome observe.Outcome // Processed; Held if another sweeper has the lease; Retried after an error
	// CauseInFlight if another sweeper has the lease, CauseDatabase after an error, which may be ErrClock
	Cause observe.Cause
	Err   error
	Took  time.Duration
}

// Alarm is the argument of SweeperConfig.OnAlarm: either Lag is set, or Err and Failures are.
type Alarm struct {
	Lag      time.Duration // how long before their deletion keys had expired
	Err      error         // why Purge failed; the sweeper tries again
	Failures int           // how many calls of Purge failed in a row
}

// clockMargin is how far the database's clock may be ahead of the time that a Sweeper expects.
const clockMargin = 10 * time.Minute

// Sweeper deletes expired keys. Run one in every process: one at a time is active, and another one takes over when its
// lease ends. It uses a seventh of one connection's time at most, however many keys there are.
type Sweeper struct {
	cfg    SweeperConfig
	sweep  Sweep
	panics hooks.Panics
	clock  sweepClock // used by Run only
}

// After a Purge the sweeper rests at least restFactor times as long as the Purge took, because deleting at full speed
// halves the rate of claims. leastRest keeps it from spinning if the clock cannot measure a Purge.
const (
	restFactor = 6
	leastRest  = 5 * time.Millisecond
)

// purgeTimeout limits one Purge, for connections that hang. A Purge that it ends has deleted nothing.
const purgeTimeout = time.Minute

// The shortest and the longest wait after failures in a row.
const (
	leastBackoff = time.Second
	mostBackoff  = time.Minute
)

// NewSweeper returns a Sweeper, or an error that names the field of cfg that is invalid. Call Run to start it.
func NewSweeper(cfg SweeperConfig) (*Sweeper, error) {
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	cfg.Limit = cmp.Or(cfg.Limit, 5000)
	cfg.Lease = cmp.Or(cfg.Lease, 5*cfg.Every)
	cfg.AlarmAfter = cmp.Or(cfg.AlarmAfter, max(time.Hour, 10*cfg.Every))
	_, archives := cfg.Store.(Archiver)
	switch {
	case cfg.Store == nil:
		return nil, errors.New("dedup: SweeperConfig.Store is required")
	case cfg.Archive != nil && !archives:
		return nil, fmt.Errorf("dedup: SweeperConfig.Archive is set, and the Store %T is not a dedup.Archiver: it would delete keys that were not archived", cfg.Store)
	case cfg.Every < 0:
		return nil, fmt.Errorf("dedup: SweeperConfig.Every is negative: %v", cfg.Every)
	case cfg.Limit < 0:
		return nil, fmt.Errorf("dedup: SweeperConfig.Limit is negative: %d", cfg.Limit)
	case cfg.Lease <= cfg.Every:
		return nil, fmt.Errorf("dedup: SweeperConfig.Lease %v is not longer than Every %v: sweepers would take turns",
			cfg.Lease, cfg.Every)
	case cfg.AlarmAfter <= cfg.Every:
		return nil, fmt.Errorf("dedup: SweeperConfig.AlarmAfter %v is not longer than Every %v: every pass would be late", cfg.AlarmAfter, cfg.Every)
	}
	cfg.Logger = usercode.Logger(cfg.Logger)
	if cfg.ConfirmClock == nil {
		cfg.ConfirmClock = func(time.Time, time.Time) bool { return false }
	}
	if cfg.OnAlarm == nil {
		cfg.OnAlarm = func(Alarm) {}
	}
	return &Sweeper{
		cfg: cfg, panics: hooks.Panics{Logger: cfg.Logger, Owner: "dedup: sweeper"},
		sweep: Sweep{Owner: owner(), Lease: cfg.Lease, Limit: cfg.Limit},
	}, nil
}

// owner returns a name that no other Sweeper has, and that tells a person which process it is.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s/%d-%s", host, os.Getpid(), rand.Text()[:8])
}

// Run sweeps until ctx ends, and then returns nil. It logs failures of the database, reports them to OnAlarm, and tries
// again. It must not be called again before it has returned. After a crash the next sweep deletes the remaining keys.
func (s *Sweeper) Run(ctx context.Context) error {
	var p sweepPass
	for ctx.Err() == nil {
		began := time.Now()
		rest := s.step(ctx, &p)
		_ = await.Sleep(ctx, max(rest, restFactor*time.Since(began), leastRest))
	}
	return nil
}

// step calls Purge once. It returns how long to rest at least.
func (s *Sweeper) step(ctx context.Context, p *sweepPass) (rest time.Duration) {
	began := time.Now()
	swept, err := s.purge(ctx)
	if ctx.Err() == nil {
		s.trace(ctx, swept, err, time.Since(began))
	}
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		p.failures++
		s.cfg.Logger.Error("dedup: sweep failed, will try again", "failures", p.failures, "error", err)
		s.alarm(Alarm{Err: err, Failures: p.failures})
		return backoff.HalfJitter(leastBackoff, mostBackoff, p.failures)
	case swept.Busy:
		*p = sweepPass{}
		return backoff.Jitter(s.cfg.Every) // processes that were started together should not ask at the same time
	}
	p.failures = 0
	p.keys += swept.Keys
	p.lag = max(p.lag, swept.Lag)
	if !p.alarmed && p.lag > s.cfg.AlarmAfter {
		p.alarmed = true
		s.cfg.Logger.Warn("dedup: sweeper has fallen behind", "lag", p.lag, "alarm_after", s.cfg.AlarmAfter)
		s.alarm(Alarm{Lag: p.lag})
	}
	if !swept.Done {
		return 0
	}
	if p.keys > 0 {
		s.cfg.Logger.Info("dedup: swept", "keys", p.keys, "lag", p.lag)
	}
	*p = sweepPass{}
	return s.cfg.Every
}

// confirmed calls ConfirmClock. If that does not return, the clock is not confirmed.
func (s *Sweeper) confirmed(expected, clock time.Time) bool {
	return hooks.Or(&s.panics, "ConfirmClock", func() bool { return s.cfg.ConfirmClock(expected, clock) },
		func() bool { return false })
}

func (s *Sweeper) alarm(a Alarm) {
	hooks.Or(&s.panics, "OnAlarm", func() bool { s.cfg.OnAlarm(a); return true }, func() bool { return false })
}

func (s *Sweeper) trace(ctx context.Context, swept SweepResult, err error, took time.Duration) {
	if s.cfg.Trace == nil {
		return
	}
	e := SweepEvent{Result: swept, Outcome: observe.Processed, Err: err, Took: took}
	switch {
	case err != nil:
		e.Outcome, e.Cause = observe.Retried, observe.CauseDatabase
	case swept.Busy:
		e.Outcome, e.Cause = observe.Held, observe.CauseInFlight
	}
	hooks.Call(ctx, &s.panics, "Swept", s.cfg.Trace.Swept, e)
}

// sweepPass is one pass over the table.
type sweepPass struct {
	keys     int
	lag      time.Duration
	alarmed  bool
	failures int // in a row
}

func (s *Sweeper) purge(ctx context.Context) (SweepResult, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	sweep, asked := s.sweep, time.Now()
	expected := s.clock.expected(asked)
	if !expected.IsZero() {
		sweep.Latest = expected.Add(clockMargin)
	}
	swept, err := s.purgeOnce(ctx, sweep)
	switch {
	case errors.Is(err, ErrClock) && s.confirmed(expected, swept.Clock):
		s.cfg.Logger.Warn("dedup: the database's clock was confirmed", "expected", expected, "clock", swept.Clock)
		s.clock = sweepClock{at: swept.Clock, seen: asked}
		sweep.Latest = swept.Clock.Add(clockMargin)
		return s.purgeOnce(ctx, sweep)
	case err == nil && !swept.Clock.IsZero():
		s.clock = sweepClock{at: swept.Clock, seen: asked}
	}
	return swept, err
}

// purgeOnce purges, and archives before if the user has asked for it.
func (s *Sweeper) purgeOnce(ctx context.Context, sweep Sweep) (SweepResult, error) {
	if s.cfg.Archive == nil {
		return s.cfg.Store.Purge(ctx, sweep)
	}
	return s.cfg.Store.(Archiver).PurgeArchived(ctx, sweep, func(ctx context.Context, expired []Expired) error {
		return usercode.Err("dedup: SweeperConfig.Archive", func() error { return s.cfg.Archive(ctx, expired) })
	})
}

// sweepClock is the time of the database's clock that a sweeper saw last.
type sweepClock struct {
	at   time.Time // the database's time
	seen time.Time // this machine's time before the database was asked
}

// expected returns the time that the database's clock should show now; zero: unknown.
func (c sweepClock) expected(now time.Time) time.Time {
	if c.at.IsZero() {
		return time.Time{}
	}
	return c.at.Add(now.Sub(c.seen)) // by the monotonic clock
}
