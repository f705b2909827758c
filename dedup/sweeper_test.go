package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/dedup"
)

// scripted is a Purger with one lease, whose Purges are functions of the test.
type scripted struct {
	purge func(ctx context.Context, n int) (dedup.SweepResult, error) // n counts from 1

	mu     sync.Mutex
	owner  string
	until  time.Time
	active int
	calls  []call
}

type call struct {
	owner      string
	began, end time.Time
	busy       bool
}

func (p *scripted) Purge(ctx context.Context, by dedup.Sweep) (swept dedup.SweepResult, err error) {
	c := call{owner: by.Owner, began: time.Now()}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.end = time.Now()
		p.calls = append(p.calls, c)
	}()
	p.mu.Lock()
	if p.owner != "" && p.owner != by.Owner && time.Now().Before(p.until) {
		p.mu.Unlock()
		c.busy = true
		return dedup.SweepResult{Busy: true}, nil
	}
	p.owner, p.until = by.Owner, time.Now().Add(by.Lease)
	p.active++
	n := p.active
	p.mu.Unlock()
	return p.purge(ctx, n)
}

func newSweeper(t *testing.T, cfg dedup.SweeperConfig) *dedup.Sweeper {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := dedup.NewSweeper(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runFor runs s for d, by the clock of the synctest bubble.
func runFor(t *testing.T, s *dedup.Sweeper, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestSweeperIsPaced(t *testing.T) {
	for _, test := range []struct {
		name  string
		purge func(n int) (time.Duration, dedup.SweepResult)
		run   time.Duration
		least int // calls
	}{
		{"much to do", func(int) (time.Duration, dedup.SweepResult) {
			return 20 * time.Millisecond, dedup.SweepResult{Keys: 1000}
		}, time.Minute, 290},
		{"slow", func(int) (time.Duration, dedup.SweepResult) { return 10 * time.Second, dedup.SweepResult{Keys: 1000} }, time.Hour, 36},
		{"in fits", func(n int) (time.Duration, dedup.SweepResult) {
			return time.Duration(n%7) * time.Millisecond, dedup.SweepResult{Keys: n % 3, Done: n%50 == 0}
		}, time.Hour, 1000},
		{
			"nothing to do, in no time", func(int) (time.Duration, dedup.SweepResult) { return 0, dedup.SweepResult{} },
			time.Minute, 1000,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &scripted{purge: func(_ context.Context, n int) (dedup.SweepResult, error) {
					d, swept := test.purge(n)
					<-time.After(d)
					return swept, nil
				}}
				began := time.Now()
				runFor(t, newSweeper(t, dedup.SweeperConfig{Store: p}), test.run)
				var busy time.Duration
				for _, c := range p.calls[:len(p.calls)-1] { // the last rest was cancelled
					busy += c.end.Sub(c.began)
				}
				if duty := float64(busy) / float64(time.Since(began)); duty > 1.0/7 {
					t.Errorf("at work for %.0f %% of the time, want at most a seventh", 100*duty)
				}
				if len(p.calls) < test.least {
					t.Errorf("%d purges in %v, want at least %d", len(p.calls), test.run, test.least)
				}
			})
		})
	}
}

func TestSweeperPausesBetweenPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{purge: func(_ context.Context, n int) (dedup.SweepResult, error) {
			return dedup.SweepResult{Keys: 1, Done: n%3 == 0}, nil
		}}
		runFor(t, newSweeper(t, dedup.SweeperConfig{Store: p, Every: 5 * time.Minute}), 14*time.Minute)
		if len(p.calls) != 9 {
			t.Fatalf("%d purges, want 3 passes of 3", len(p.calls))
		}
		for i := 3; i < len(p.calls); i += 3 {
			if d := p.calls[i].began.Sub(p.calls[i-1].end); d < 5*time.Minute {
				t.Errorf("pass %d began %v after the one before", i/3, d)
			}
		}
	})
}

func TestSweeperPassesItsLimits(t *testing.T) {
	var got dedup.Sweep
	p := purgerFunc(func(_ context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
		got = by
		return dedup.SweepResult{Done: true}, nil
	})
	for _, test := range []struct {
		name string
		cfg  dedup.SweeperConfig
		want dedup.Sweep
	}{
		{"defaults", dedup.SweeperConfig{}, dedup.Sweep{Lease: 5 * time.Minute, Limit: 5000}},
		{
			"own",
			dedup.SweeperConfig{Every: time.Second, Limit: 7, Lease: time.Hour},
			dedup.Sweep{Lease: time.Hour, Limit: 7},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.cfg.Store = p
				runFor(t, newSweeper(t, test.cfg), time.Millisecond)
				if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(dedup.Sweep{}, "Owner")); diff != "" {
					t.Error(diff)
				}
				if len(got.Owner) < 16 {
					t.Errorf("owner %q may not differ from the next sweeper's", got.Owner)
				}
			})
		})
	}
}

type purgerFunc func(context.Context, dedup.Sweep) (dedup.SweepResult, error)

func (f purgerFunc) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	return f(ctx, by)
}

func TestSweeperTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{purge: func(context.Context, int) (dedup.SweepResult, error) { return dedup.SweepResult{Done: true}, nil }}
		first, stop := context.WithCancel(t.Context())
		rest, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = newSweeper(t, dedup.SweeperConfig{Store: p}).Run(first) })
		synctest.Wait()
		for range 2 {
			wg.Go(func() { _ = newSweeper(t, dedup.SweeperConfig{Store: p}).Run(rest) })
		}
		<-time.After(time.Hour)
		stopped := time.Now()
		stop()
		<-time.After(time.Hour)
		cancel()
		wg.Wait()

		var owners []string
		var took time.Time
		for _, c := range p.calls {
			if c.busy {
				continue
			}
			if len(owners) == 0 || owners[len(owners)-1] != c.owner {
				owners, took = append(owners, c.owner), c.began
			}
		}
		if len(owners) != 2 {
			t.Fatalf("%d changes of owner, want 1: sweepers take turns", len(owners)-1)
		}
		if d := took.Sub(stopped); d > 6*time.Minute {
			t.Errorf("the work was taken over after %v", d)
		}
	})
}

func TestSweeperGoesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("database is down")
		p := &scripted{purge: func(_ context.Context, n int) (dedup.SweepResult, error) {
			if n%20 > 10 {
				return dedup.SweepResult{}, down
			}
			return dedup.SweepResult{Keys: 1, Done: true}, nil
		}}
		var alarms []dedup.Alarm
		var log bytes.Buffer
		runFor(t, newSweeper(t, dedup.SweeperConfig{
			Store: p, OnAlarm: func(a dedup.Alarm) { alarms = append(alarms, a) },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}), time.Hour)

		if len(alarms) < 9 {
			t.Fatalf("%d alarms", len(alarms))
		}
		for i, a := range alarms {
			if want := i%9 + 1; a.Err != down || a.Failures != want || a.Lag != 0 {
				t.Errorf("alarm %d is %+v, want failure %d", i, a, want)
			}
		}
		for i := 1; i < len(p.calls); i++ {
			if d := p.calls[i].began.Sub(p.calls[i-1].end); d < 500*time.Millisecond || d > time.Minute+time.Second {
				t.Errorf("call %d came %v after the one before", i, d)
			}
		}
		if last := p.calls[len(p.calls)-1]; time.Since(last.end) > 2*time.Minute {
			t.Errorf("the sweeper gave up %v ago", time.Since(last.end))
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != len(alarms) {
			t.Errorf("%d errors in the log, want %d:\n%s", n, len(alarms), log.String())
		}
	})
}

func TestSweeperAlarmsWhenLate(t *testing.T) {
	for _, test := range []struct {
		name   string
		lag    time.Duration
		every  time.Duration
		after  time.Duration
		alarms int // in three passes
	}{
		{"in time", 59 * time.Minute, 0, 0, 0},
		{"late", 61 * time.Minute, 0, 0, 3},
		{"own limit", 3 * time.Minute, 0, 2 * time.Minute, 3},
		{"seldom passes are late by design", 2 * time.Hour, time.Hour, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &scripted{purge: func(_ context.Context, n int) (dedup.SweepResult, error) {
					return dedup.SweepResult{Keys: 1, Lag: test.lag, Done: n%10 == 0}, nil
				}}
				var alarms []dedup.Alarm
				cfg := dedup.SweeperConfig{
					Store: p, Every: test.every, AlarmAfter: test.after,
					OnAlarm: func(a dedup.Alarm) { alarms = append(alarms, a) },
				}
				every := max(test.every, time.Minute)
				runFor(t, newSweeper(t, cfg), 2*every+every/2)
				if len(alarms) != test.alarms {
					t.Fatalf("%d alarms, want %d", len(alarms), test.alarms)
				}
				for _, a := range alarms {
					if a.Lag != test.lag || a.Err != nil {
						t.Errorf("alarm %+v, want lag %v", a, test.lag)
					}
				}
			})
		})
	}
}

func TestSweeperOutlivesAPurgeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{purge: func(ctx context.Context, n int) (dedup.SweepResult, error) {
			if n == 1 {
				<-ctx.Done() // a connection that answers no more
				return dedup.SweepResult{}, ctx.Err()
			}
			return dedup.SweepResult{Done: true}, nil
		}}
		var alarms []dedup.Alarm
		runFor(t, newSweeper(t, dedup.SweeperConfig{Store: p, OnAlarm: func(a dedup.Alarm) { alarms = append(alarms, a) }}), time.Hour)
		if len(p.calls) < 10 {
			t.Errorf("%d purges in an hour", len(p.calls))
		}
		if len(alarms) != 1 || !errors.Is(alarms[0].Err, context.DeadlineExceeded) {
			t.Errorf("alarms %+v, want one", alarms)
		}
	})
}

func TestSweeperStops(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration
	}{
		{"before it began", 0},
		{"in a purge", 5 * time.Second},
		{"in a rest", 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &scripted{purge: func(ctx context.Context, _ int) (dedup.SweepResult, error) {
					select {
					case <-ctx.Done():
						return dedup.SweepResult{}, ctx.Err()
					case <-time.After(10 * time.Second):
						return dedup.SweepResult{}, nil
					}
				}}
				ctx, cancel := context.WithTimeout(t.Context(), test.after)
				defer cancel()
				began := time.Now()
				s := newSweeper(t, dedup.SweeperConfig{Store: p, OnAlarm: func(a dedup.Alarm) { t.Errorf("alarm %+v", a) }})
				if err := s.Run(ctx); err != nil {
					t.Errorf("Run = %v", err)
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("Run returned after %v, want %v", took, test.after)
				}
			})
		})
	}
}

func TestNewSweeperRefuses(t *testing.T) {
	p := purgerFunc(nil)
	for _, test := range []struct {
		name string
		cfg  dedup.SweeperConfig
		says string
	}{
		{"no store", dedup.SweeperConfig{}, "SweeperConfig.Store"},
		{"negative pause", dedup.SweeperConfig{Store: p, Every: -1}, "SweeperConfig.Every"},
		{"negative limit", dedup.SweeperConfig{Store: p, Limit: -1}, "SweeperConfig.Limit"},
		{"short lease", dedup.SweeperConfig{Store: p, Lease: time.Minute}, "SweeperConfig.Lease"},
		{"alarm at every pass", dedup.SweeperConfig{Store: p, AlarmAfter: time.Minute}, "SweeperConfig.AlarmAfter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := dedup.NewSweeper(test.cfg); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("NewSweeper = %v, want an error that names %s", err, test.says)
			}
		})
	}
}
