package deduptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// horizonCases are about messages that may be from before the horizon.
func horizonCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{
			name: "an old message without a row is unprovable, and nothing is claimed", perIsolation: true,
			run: unprovable[TTx],
		},
		{name: "a message younger than the horizon, or without a time, is first", run: younger[TTx]},
		{name: "the horizon never moves back", run: neverBack[TTx]},
		{name: "a message's time may be finer than the database's clock", run: fineTimes[TTx]},
		{name: "future times are refused", run: future[TTx]},
		{name: "times before 1980 are refused before and after a sweep", run: wrongUnits[TTx]},
		{name: "only the database's clock judges a message's time", run: slowClock[TTx]},
		{name: "clocks that disagree are not the message's fault", run: clocksDisagree[TTx]},
		{name: "unprovable in a batch concerns its message only", run: unprovableInBatch[TTx]},
		{name: "a snapshot older than the purge does not hide it", perIsolation: true, run: oldSnapshot[TTx]},
		{name: "a random history never makes a known key new", run: randomHistory[TTx]},
		{
			name: "a claim racing a purge is duplicate or unprovable, never new", perIsolation: true,
			run: horizonStress[TTx],
		},
	}
}

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// forgotten claims id with window, and has it deleted an hour after the window has passed. It returns the time of the
// claim by the clock after ageing.
func (e *env[TTx]) forgotten(t *testing.T, id string, window time.Duration) (claimed time.Time) {
	t.Helper()
	now := time.Now()
	e.must(t, e.node(t), recordAt(id, now, window), dedup.First)
	age := window + time.Hour
	e.Age(t, age)
	if swept := sweepAll(t, e.node(t), 100); swept.Keys == 0 {
		t.Fatal("no keys forgotten")
	}
	return now.Add(-age)
}

func unprovable[TTx any](t *testing.T, e *env[TTx]) {
	claimed := e.forgotten(t, "k", 24*time.Hour)
	s := e.node(t)
	for _, r := range []dedup.Record{
		recordAt("k", claimed, 24*time.Hour),                       // a late redelivery
		recordAt("other", claimed.Add(-time.Minute), 24*time.Hour), // it may have been processed
		recordAt("ancient", claimed.Add(-9999*time.Hour), 24*time.Hour),
	} {
		for range 2 { // the first attempt must not have claimed anything
			if got := verdicts(t, s, []dedup.Record{r}); got[0] != dedup.Unprovable {
				t.Errorf("%v: %v, want unprovable", r.Key, got[0])
			}
		}
		r.Time = time.Time{}
		if v := verdict(t, s, r).Verdict; v != dedup.First {
			t.Errorf("%v without its time: %v, want first: unprovable left a claim behind", r.Key, v)
		}
	}
	ctx := bounded(t)
	err := e.Tx(ctx, e.options(), func(tx TTx) error {
		claims, err := s.Claim(ctx, tx, []dedup.Record{recordAt("k", claimed, 24*time.Hour)})
		if err == nil && claims[0].Verdict != dedup.Unprovable {
			t.Errorf("in the caller's own transaction: %v, want unprovable", claims[0].Verdict)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e.wantEffects(t, "k")
}

func younger[TTx any](t *testing.T, e *env[TTx]) {
	claimed := e.forgotten(t, "k", 24*time.Hour)
	s := e.node(t)
	e.must(t, s, recordAt("younger", claimed.Add(time.Minute), 24*time.Hour), dedup.First)
	e.must(t, s, recordAt("fresh", time.Now(), 24*time.Hour), dedup.First)
	e.must(t, s, recordAt("timeless", time.Time{}, 24*time.Hour), dedup.First)
	e.must(t, s, recordAt("younger", claimed.Add(time.Minute), 24*time.Hour), dedup.Duplicate)
}

// neverBack deletes keys one by one, in an order that differs from that of their expiry.
func neverBack[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	const window, age = 2 * time.Hour, 4 * time.Hour
	var recs []dedup.Record
	for i := range 12 {
		ahead := time.Duration(i*7%12+1) * 4 * time.Minute // decides when the key expires
		recs = append(recs, recordAt(fmt.Sprint("k", i), time.Now().Add(ahead), window))
		e.must(t, s, recs[i], dedup.First)
	}
	e.Age(t, age)
	for i := range recs {
		recs[i].Time = recs[i].Time.Add(-age)
	}
	s = e.node(t)
	by := dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 1}
	for keys := 0; keys < len(recs); {
		swept, err := purger(t, s).Purge(bounded(t), by)
		if err != nil || swept.Busy || swept.Done && swept.Keys == 0 && keys == 0 {
			t.Fatalf("purge: %+v, error %v", swept, err)
		}
		keys += swept.Keys
		for _, r := range recs {
			if v := verdict(t, s, r).Verdict; v != dedup.Duplicate && v != dedup.Unprovable {
				t.Fatalf("after %d of %d keys were forgotten, %v is %v", keys, len(recs), r.Key, v)
			}
		}
	}
}

// fineTimes: if the time of a message decides when its row expires, the horizon is that time. A store that rounds times
// must not take the message for younger than the horizon.
func fineTimes[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	const window, age = 2 * time.Hour, 3 * time.Hour
	var recs []dedup.Record
	for i, digits := range []time.Duration{1, 499, 500, 501, 999, 499_999, 500_001, 999_999, 999_999_999} {
		at := time.Now().Add(time.Duration(i+1) * time.Minute).Truncate(time.Second).Add(digits)
		recs = append(recs, recordAt(fmt.Sprint(digits), at, window))
	}
	for _, r := range recs { // in the order of their times, so that each is the youngest one that was deleted
		e.must(t, s, r, dedup.First)
		e.Age(t, age)
		if swept := sweepAll(t, s, 10); swept.Keys != 1 {
			t.Fatalf("%d keys forgotten, want 1", swept.Keys)
		}
		again := r
		again.Time = r.Time.Add(-age)
		e.must(t, e.node(t), again, dedup.Unprovable)
		e.Age(t, -age)
	}
}

func future[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	_, err := e.handle(ctx, s, recordAt("k", time.Now().Add(dedup.MaxAhead+time.Minute), 0))
	if !errors.Is(err, dedup.ErrFuture) || s.Retryable(err) {
		t.Fatalf("a message of the future: %v (retryable %v), want ErrFuture", err, s.Retryable(err))
	}
	e.wantEffects(t)
	e.must(t, s, recordAt("k", time.Now().Add(dedup.MaxAhead-time.Minute), 0), dedup.First)
}

// wrongUnits: numbers that were read in another unit than their sender's are refused with a hint, whether keys were
// deleted before or not. Otherwise such messages would pass until the first sweep and be Unprovable from then on.
func wrongUnits[TTx any](t *testing.T, e *env[TTx]) {
	now := time.Now()
	check := func(when string) {
		s := e.node(t)
		for what, c := range map[string]struct {
			at   time.Time
			hint string
		}{
			"0":                              {time.Unix(0, 0), "before 1980"},
			"a negative time":                {time.Unix(-1, 0), "before 1980"},
			"seconds taken for milliseconds": {time.UnixMilli(now.Unix()), "seconds in place of milliseconds"},
			"seconds taken for microseconds": {time.UnixMicro(now.Unix()), "seconds in place of microseconds"},
			"seconds taken for nanoseconds":  {time.Unix(0, now.Unix()), "seconds in place of nanoseconds"},
			"milliseconds taken for seconds": {time.Unix(now.UnixMilli(), 0), "milliseconds in place of seconds"},
			"microseconds taken for seconds": {time.Unix(now.UnixMicro(), 0), "microseconds in place of seconds"},
			"microseconds taken for milliseconds": {
				time.UnixMilli(now.UnixMicro()),
				"microseconds in place of milliseconds",
			},
			"nanoseconds taken for seconds": {time.Unix(now.UnixNano(), 0), "nanoseconds in place of seconds"},
		} {
			_, err := e.handle(bounded(t), s, recordAt(when+" "+what, c.at, 24*time.Hour))
			if !errors.Is(err, dedup.ErrFuture) || s.Retryable(err) || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("%s, %s: %v; want ErrFuture with %q", when, what, err, c.hint)
			}
		}
		e.must(t, s, recordAt(when+" unknown", time.Time{}, 24*time.Hour), dedup.First)
	}
	check("before a sweep")
	e.wantEffects(t, "before a sweep unknown")
	e.forgotten(t, "k", 24*time.Hour)
	check("after a sweep")
}

// slowClock runs a node on a machine whose clock is two hours behind the database's.
func slowClock[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "SetClock", e.SetClock == nil)
	claimed := e.forgotten(t, "k", 24*time.Hour)
	s := e.node(t)
	e.SetClock(s, func() time.Time { return time.Now().Add(-2 * time.Hour) })
	e.must(t, s, recordAt("new", time.Now(), 0), dedup.First)
	e.must(t, s, recordAt("new", time.Now().Add(time.Hour), 0), dedup.Duplicate)
	// Whether the horizon must be read is also decided by the database's clock.
	e.must(t, s, recordAt("k", claimed, 24*time.Hour), dedup.Unprovable)
	e.must(t, s, recordAt("hour old", time.Now().Add(-dedup.MinWindow-time.Minute), 24*time.Hour), dedup.First)
}

func clocksDisagree[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "SetClock", e.SetClock == nil)
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		// the database's clock is slow, then the machine's
		s, ctx := e.node(t), bounded(t)
		machine, at := time.Now().Add(off), time.Now().Add(dedup.MaxAhead+time.Minute)
		e.SetClock(s, func() time.Time { return machine })
		_, err := e.handle(ctx, s, recordAt("k", at, 0))
		if !errors.Is(err, dedup.ErrClocks) || errors.Is(err, dedup.ErrFuture) || !s.Retryable(err) {
			t.Fatalf("machine %v ahead of the database: %v (retryable %v), want ErrClocks, retryable", off, err,
				s.Retryable(err))
		}
		for _, clock := range []time.Time{machine, at} {
			if says := clock.UTC().Format(time.RFC3339); !strings.Contains(err.Error(), says) {
				t.Errorf("%q does not name the time %s", err, says)
			}
		}
	}
	e.wantEffects(t)
}

func unprovableInBatch[TTx any](t *testing.T, e *env[TTx]) {
	claimed := e.forgotten(t, "k", 24*time.Hour)
	s := e.node(t)
	e.must(t, s, recordAt("known", time.Time{}, 24*time.Hour), dedup.First)
	recs := []dedup.Record{
		recordAt("new", time.Now(), 24*time.Hour),
		recordAt("k", claimed, 24*time.Hour),
		recordAt("known", claimed, 24*time.Hour),
		recordAt("younger", claimed.Add(time.Hour), 24*time.Hour),
		recordAt("k", claimed, 24*time.Hour),
	}
	want := []dedup.Verdict{dedup.First, dedup.Unprovable, dedup.Duplicate, dedup.First, dedup.Unprovable}
	for range 2 {
		got := verdicts(t, s, recs)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("verdicts %v, want %v", got, want)
		}
		want[0], want[3] = dedup.Duplicate, dedup.Duplicate
	}
}

// oldSnapshot: the transaction reads from the database before the first purge, and claims after it.
func oldSnapshot[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	now := time.Now()
	e.must(t, s, recordAt("k", now, 2*time.Hour), dedup.First)
	const age = 3 * time.Hour
	e.Age(t, age)
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, recordAt("warm", time.Now(), 2*time.Hour), dedup.First)
	var got dedup.Verdict
	err := e.Tx(ctx, e.options(), func(tx TTx) error {
		if err := e.Effect(ctx, tx, "a statement that takes the snapshot"); err != nil {
			return err
		}
		if swept := sweepAll(t, e.node(t), 100); swept.Keys != 1 {
			t.Errorf("%d keys forgotten, want 1", swept.Keys)
		}
		claims, err := s.Claim(ctx, tx, []dedup.Record{recordAt("k", now.Add(-age), 2*time.Hour)})
		if err == nil {
			got = claims[0].Verdict
		}
		return err
	})
	if err != nil && !s.Retryable(err) {
		t.Fatal(err)
	}
	if err == nil && got != dedup.Unprovable && got != dedup.Duplicate {
		t.Errorf("verdict %v, want unprovable, duplicate or a retryable error", got)
	}
	e.must(t, s, recordAt("k", now.Add(-age), 2*time.Hour), dedup.Unprovable)
}
