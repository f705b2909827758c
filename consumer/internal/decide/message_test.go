package decide_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/observe"
)

// of is an error of the database, as a store that names classes returns it.
func of(class driver.FaultClass) decide.Failure {
	return decide.Failure{Cause: observe.CauseDatabase, Database: true, Class: class, Counts: faults.Any.After(class,
		faults.Handler)}
}

func TestOfMessage(t *testing.T) {
	failed := decide.Failure{Cause: observe.CauseHandler}
	with := func(change func(*decide.Failure)) decide.Failure {
		f := failed
		change(&f)
		return f
	}
	attempt := func(n int) decide.Now { return decide.Now{Attempt: n, MaxAttempts: 3} }
	for _, tc := range []struct {
		name  string
		f     decide.Failure
		p     decide.Past
		n     decide.Now
		do    decide.Do
		cause observe.Cause
		wait  int // Backoff
	}{
		{"a first failure", failed, decide.Past{}, attempt(1), decide.Retry, observe.CauseHandler, 1},
		{"a second failure", failed, decide.Past{Failures: 1}, attempt(2), decide.Retry, observe.CauseHandler, 2},
		{"the last attempt", failed, decide.Past{Failures: 2}, attempt(3), decide.Park, observe.CauseExhausted, 0},
		{
			"the last attempt by the broker's count, of which this process saw none", failed,
			decide.Past{},
			attempt(3),
			decide.Retry, observe.CauseHandler, 3,
		},
		{
			"the same, and this process saw one", failed,
			decide.Past{Failures: 1},
			attempt(3), decide.Park,
			observe.CauseExhausted, 0,
		},
		{
			"MaxAttempts is 1", failed,
			decide.Past{},
			decide.Now{Attempt: 1, MaxAttempts: 1},
			decide.Park,
			observe.CauseExhausted, 0,
		},
		{
			"each of 100 attempts reached another process", failed,
			decide.Past{},
			attempt(100), decide.Park,
			observe.CauseExhausted, 0,
		},
		{
			"the source gives up", failed,
			decide.Past{},
			decide.Now{Attempt: 1, MaxAttempts: 3, GiveUp: true},
			decide.Park, observe.CauseExhausted, 0,
		},
		{
			"a permanent failure", with(func(f *decide.Failure) { f.Permanent = true }),
			decide.Past{},
			attempt(1),
			decide.Park, observe.CausePermanent, 0,
		},
		{
			"the last attempt panicked", with(func(f *decide.Failure) { f.Panic = true }),
			decide.Past{Failures: 2},
			attempt(3),
			decide.Park, observe.CausePanic, 0,
		},
		{
			"a mismatch",
			decide.Failure{Cause: observe.CauseMismatch, Refused: true, Permanent: true},
			decide.Past{},
			attempt(1),
			decide.Park, observe.CauseMismatch, 0,
		},
		{
			"the handler asks to be held", with(func(f *decide.Failure) { f.Asked, f.Held = true, true }),
			decide.Past{Failures: 9},
			attempt(3),
			decide.Hold, observe.CauseHandler, 0,
		},
		{
			"the handler asks to be held, too late",
			with(func(f *decide.Failure) { f.Asked, f.Held, f.Late = true, true, true }),
			decide.Past{Failures: 2},
			attempt(3), decide.Park, observe.CauseExhausted, 0,
		},
		{
			"the handler asks for another time, and that counts",
			with(func(f *decide.Failure) { f.Asked, f.After = true, time.Minute }),
			decide.Past{Failures: 1},
			attempt(2), decide.Retry, observe.CauseHandler, 0,
		},
		{
			"the key is in flight",
			decide.Failure{Cause: observe.CauseInFlight, InFlight: true},
			decide.Past{InFlight: 4, Failures: 9},
			attempt(3),
			decide.Hold, observe.CauseInFlight, 5,
		},
		{
			"the timeout ended a wait for a key", with(func(f *decide.Failure) { f.Late, f.InFlight = true, true }),
			decide.Past{},
			attempt(1),
			decide.Retry, observe.CauseHandler, 1,
		},
		{
			"the timeout broke the connection", with(func(f *decide.Failure) { f.Late, f.Database = true, true }),
			decide.Past{},
			attempt(1),
			decide.Retry, observe.CauseHandler, 1,
		},
		{
			"the clocks disagree",
			decide.Failure{Database: true, Clocks: true},
			decide.Past{Faults: 9},
			attempt(3),
			decide.Pause, observe.CauseDatabase, 9,
		},
		{
			"a lost connection", of(driver.FaultConnection),
			decide.Past{},
			attempt(3), decide.Pause,
			observe.CauseDatabase, 1,
		},
		{
			"a lost connection under a permanent error",
			decide.Failure{Database: true, Permanent: true, Class: driver.FaultConnection},
			decide.Past{},
			attempt(3), decide.Pause, observe.CauseDatabase, 1,
		},
		{
			"a first deadlock", of(driver.FaultContention),
			decide.Past{},
			attempt(3), decide.Hold,
			observe.CauseDatabase, 1,
		},
		{
			"a second one, and nothing is committed", of(driver.FaultContention),
			decide.Past{Contended: 1},
			attempt(3),
			decide.Pause, observe.CauseDatabase, 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, _ := decide.OfMessage(tc.f, tc.p, tc.n)
			if v.Do != tc.do || v.Cause != tc.cause || v.Backoff != tc.wait || v.After != tc.f.After {
				t.Errorf("%+v, want do %d, cause %q, backoff %d", v, tc.do, tc.cause, tc.wait)
			}
			if counts := v.Do == decide.Retry || v.Do == decide.Park && !tc.f.Refused; v.Counted != counts {
				t.Errorf("%+v: counted %v", v, v.Counted)
			}
		})
	}
}

// Errors of the database count against a message from the time on that internal/faults says, which docs/operations.md
// shows.
func TestFaultsCountInTheEnd(t *testing.T) {
	const never = 0
	for _, tc := range []struct {
		name   string
		f      decide.Failure
		beside bool // other messages are committed between the errors
		now    decide.Now
		want   int // the first time that counts
	}{
		{"a missing column, beside commits", of(driver.FaultDeployment), true, decide.Now{}, 2},
		{"a missing column, alone", of(driver.FaultDeployment), false, decide.Now{}, never},
		{"a lost connection, beside commits", of(driver.FaultConnection), true, decide.Now{}, 21},
		{"a lost connection, alone", of(driver.FaultConnection), false, decide.Now{}, never},
		{"a deadlock, beside commits", of(driver.FaultContention), true, decide.Now{}, never},
		{"an idle limit, alone", of(driver.FaultIdleLimit), false, decide.Now{}, 2},
		{"a time limit that may have been a lock", of(driver.FaultTimeLimit), true, decide.Now{}, never},
		{
			"a time limit without locks, beside commits, after a quick claim", of(driver.FaultTimeLimit), true,
			decide.Now{ShortWaits: true, Quick: true},
			2,
		},
		{
			"a time limit without locks, beside commits, after a slow claim", of(driver.FaultTimeLimit), true,
			decide.Now{ShortWaits: true},
			10,
		},
		{
			"a time limit without locks, alone, after a quick claim", of(driver.FaultTimeLimit), false,
			decide.Now{ShortWaits: true, Quick: true},
			10,
		},
		{"the same, alone, after a slow claim", of(driver.FaultTimeLimit), false, decide.Now{ShortWaits: true}, never},
		{
			"a time limit without locks, alone, after a quick claim, while many messages fail", of(driver.FaultTimeLimit), false,
			decide.Now{ShortWaits: true, Quick: true, Faulty: decide.AloneMost},
			never,
		},
		{"clocks that disagree, beside commits", decide.Failure{Database: true, Clocks: true, Counts: faults.Verdict{Beside: 2}}, true, decide.Now{}, never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p decide.Past
			got, warned := 0, 0
			for n := 1; n <= 40; n++ {
				now := tc.now
				now.Attempt, now.MaxAttempts = 1, 1000
				if tc.beside {
					now.Commits = n
				}
				var v decide.Verdict
				if v, p = decide.OfMessage(tc.f, p, now); v.Counted && got == never {
					got = n
				}
				if v.Warn == decide.WarnBlamed {
					warned++
				}
			}
			if got != tc.want {
				t.Errorf("the first that counts is number %d, want %d", got, tc.want)
			}
			if want := min(got, 1); warned != want || p.Blamed != (want == 1) {
				t.Errorf("%d warnings, blamed %v", warned, p.Blamed)
			}
		})
	}
}

func TestWarningsAreGivenOnce(t *testing.T) {
	for _, tc := range []struct {
		f    decide.Failure
		warn decide.Warning
		at   int
	}{
		{decide.Failure{InFlight: true}, decide.WarnInFlight, decide.InFlightToWarn},
		{of(driver.FaultContention), decide.WarnContended, decide.ContendedToWarn},
	} {
		var p decide.Past
		for n := 1; n <= 50; n++ {
			var v decide.Verdict
			v, p = decide.OfMessage(tc.f, p, decide.Now{MaxAttempts: 3, Commits: n})
			if (v.Warn == tc.warn) != (n == tc.at) {
				t.Errorf("time %d: warning %d, want %d at %d", n, v.Warn, tc.warn, tc.at)
			}
		}
		if !p.Known() && tc.warn == decide.WarnContended {
			t.Error("a message that lost to others is unknown")
		}
	}
}

func TestStreak(t *testing.T) {
	lost, deadlock, late := of(driver.FaultConnection), of(driver.FaultContention), of(driver.FaultTimeLimit)
	s := decide.Streak{}.After(deadlock, false, false).After(late, false, false)
	if s != (decide.Streak{Waits: 2}) {
		t.Errorf("after two waits for locks: %+v", s)
	}
	if s = s.After(late, true, false); s.Faults != 1 || s.Down {
		t.Errorf("after a limit of time without a wait: %+v", s)
	}
	if s = s.After(lost, false, false); !s.Down {
		t.Errorf("after two faults in a row: %+v", s)
	}
	if s := (decide.Streak{Worked: true}).After(lost, false, true).After(lost, false, true); s.Down {
		t.Errorf("known culprits stop each other while others are committed: %+v", s)
	}
	if s := (decide.Streak{}).After(lost, false, true).After(lost, false, true); !s.Down {
		t.Errorf("after two faults of known culprits, without a commit: %+v", s)
	}
}
