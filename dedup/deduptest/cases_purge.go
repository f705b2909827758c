package deduptest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// purgeCases are about deleting expired keys.
func purgeCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "purge spares young rows", run: purgeSpares[TTx]},
		{name: "a row that has expired counts until it is forgotten", run: expiredCounts[TTx]},
		{name: "purge of an empty table is done", run: purgeEmpty[TTx]},
		{name: "purge forgets no more than its limit", run: purgeIsBounded[TTx]},
		{name: "one sweeper at a time, and another takes over when its lease ran out", run: purgeLease[TTx]},
		{name: "of sweepers at once one works", run: sweepersAtOnce[TTx]},
		{name: "purge spares a row that a transaction is forgetting", run: purgeBesideForget[TTx]},
		{name: "a purge under a clock that is ahead forgets nothing", run: purgeClockAhead[TTx]},
		{name: "a purge of tables that need a newer program forgets nothing", run: purgeOldProgram[TTx]},
		{name: "a purge that is cut short forgets nothing without saying so", run: purgeCut[TTx]},
	}
}

func purger[TTx any](t *testing.T, s dedup.Store[TTx]) dedup.Purger {
	t.Helper()
	p, ok := s.(dedup.Purger)
	hook(t, "dedup.Purger", !ok)
	return p
}

// sweepAll purges until Done, and returns the sum of all results.
func sweepAll[TTx any](t *testing.T, s dedup.Store[TTx], limit int) (all dedup.SweepResult) {
	t.Helper()
	p, ctx := purger(t, s), bounded(t)
	by := dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: limit}
	gaveUp := false
	for range 1000 {
		var swept dedup.SweepResult
		err := retry(ctx, s, func() (err error) {
			swept, err = p.Purge(ctx, by)
			// On MySQL a cancelled purge may keep its locks for a while. It then looks like another sweeper.
			for ; err == nil && swept.Busy && gaveUp && ctx.Err() == nil; _ = await.Sleep(ctx, 5*time.Millisecond) {
				swept, err = p.Purge(ctx, by)
			}
			gaveUp = gaveUp || err != nil
			return err
		})
		if err != nil {
			t.Fatalf("purge: %v", err)
		}
		if swept.Busy {
			t.Fatal("purge: busy, but this owner has the lease")
		}
		if swept.Keys > limit {
			t.Fatalf("purge forgot %d keys, more than its limit of %d", swept.Keys, limit)
		}
		all.Keys += swept.Keys
		all.Lag = max(all.Lag, swept.Lag)
		if swept.Done {
			return all
		}
	}
	t.Fatal("purge is never done")
	return all
}

func purgeSpares[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	now := time.Now()
	e.must(t, s, recordAt("short", now, 2*time.Hour), dedup.First)
	e.must(t, s, recordAt("long", now, 20*time.Hour), dedup.First)
	e.must(t, s, recordAt("default", now, 0), dedup.First)
	e.must(t, s, recordAt("ahead", now.Add(50*time.Minute), 2*time.Hour), dedup.First)
	if swept := sweepAll(t, s, 100); swept.Keys != 0 {
		t.Fatalf("%d keys forgotten before any had expired", swept.Keys)
	}
	e.Age(t, 150*time.Minute)
	s = e.node(t)
	swept := sweepAll(t, s, 100)
	if swept.Keys != 1 {
		t.Fatalf("%d keys forgotten, want 1", swept.Keys)
	}
	if want := 30 * time.Minute; swept.Lag < want-time.Second || swept.Lag > want+time.Since(now)+time.Second {
		t.Errorf("lag %v, want %v", swept.Lag, want)
	}
	e.must(t, s, recordAt("long", now, 20*time.Hour), dedup.Duplicate)
	e.must(t, s, recordAt("default", now, 0), dedup.Duplicate)
	e.must(t, s, recordAt("ahead", now, 2*time.Hour), dedup.Duplicate)
	// a message without a time is never Unprovable, so First shows that the row is gone
	e.must(t, s, recordAt("short", time.Time{}, 2*time.Hour), dedup.First)
}

// A newer release may keep keys for another reason than their age.
func purgeOldProgram[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "OldSchema", e.OldSchema == nil)
	r, s := recordAt("k", time.Now(), 2*time.Hour), e.node(t)
	e.must(t, s, r, dedup.First)
	const age = 3 * time.Hour
	e.Age(t, age)
	swept, err := purger(t, e.OldSchema(t)).Purge(bounded(t),
		dedup.Sweep{Owner: "suite", Lease: time.Minute, Limit: 100})
	if !errors.Is(err, dedup.ErrSchema) || swept.Keys != 0 {
		t.Errorf("%+v, %v; want ErrSchema", swept, err)
	}
	r.Time = r.Time.Add(-age)
	e.must(t, s, r, dedup.Duplicate)
}

func expiredCounts[TTx any](t *testing.T, e *env[TTx]) {
	r := recordAt("k", time.Now(), 2*time.Hour)
	e.must(t, e.node(t), r, dedup.First)
	const age = 100 * time.Hour
	e.Age(t, age)
	r.Time = r.Time.Add(-age)
	s := e.node(t)
	e.must(t, s, r, dedup.Duplicate)
	if got := verdicts(t, s, []dedup.Record{record("new"), r}); got[1] != dedup.Duplicate {
		t.Errorf("in a batch: %v, want duplicate", got[1])
	}
	other := r
	other.Fingerprint = dedup.FingerprintOf([]byte("other content"))
	e.must(t, s, other, dedup.Mismatch)
}

func purgeClockAhead[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, recordAt("k", time.Now(), time.Hour), dedup.First)
	const age = 2 * time.Hour
	e.Age(t, age)
	s = e.node(t)
	purge := func(owner string, latest time.Time) (swept dedup.SweepResult, err error) {
		t.Helper()
		err = retry(ctx, s, func() (err error) {
			swept, err = purger(t, s).Purge(ctx, dedup.Sweep{
				Owner: owner, Lease: 3 * time.Hour, Limit: 10,
				Latest: latest,
			})
			return err
		})
		if swept.Clock.IsZero() {
			t.Fatalf("%s: the store does not tell its clock (error %v)", owner, err)
		}
		return swept, err
	}
	refused := func(owner string) (clock time.Time) {
		t.Helper()
		swept, err := purge(owner, time.Unix(1_000_000_000, 0))
		if !errors.Is(err, dedup.ErrClock) || s.Retryable(err) || swept.Keys != 0 {
			t.Fatalf("%s: %+v, %v, want ErrClock", owner, swept, err)
		}
		r := recordAt("k", time.Now().Add(-age), time.Hour)
		if v := verdict(t, s, r).Verdict; v != dedup.Duplicate {
			t.Fatalf("%s forgot the key: it is %v", owner, v)
		}
		return swept.Clock
	}
	clock := refused("a")
	if swept, err := purge("b", clock.Add(time.Hour)); err != nil || swept.Busy || swept.Keys != 1 {
		// a has not taken the lease
		t.Fatalf("b, whose clock is right: %+v, %v, want one key forgotten", swept, err)
	}
	e.must(t, s, recordAt("k", time.Now(), time.Hour), dedup.First)
	if swept, err := purge("c", clock.Add(time.Hour)); err != nil || !swept.Busy || swept.Clock.Before(clock) {
		t.Fatalf("c, beside the lease of b: %+v, %v, want busy and a clock", swept, err)
	}
	if swept, err := purge("c", clock.Add(-time.Hour)); !errors.Is(err, dedup.ErrClock) {
		t.Fatalf("c, beside the lease of b and an hour behind: %+v, %v, want ErrClock", swept, err)
	}
	if swept, err := purge("b", time.Time{}); err != nil || swept.Busy {
		t.Fatalf("b, whatever the clock shows: %+v, %v", swept, err)
	}
}

func sweepersAtOnce[TTx any](t *testing.T, e *env[TTx]) {
	recs := make([]dedup.Record, 60)
	for i := range recs {
		recs[i] = recordAt(fmt.Sprint("k", i), time.Now(), time.Hour)
	}
	verdicts(t, e.node(t), recs)
	e.Age(t, 2*time.Hour)
	ctx := bounded(t)
	const sweepers = 4
	var keys [sweepers]int
	e.together(t, sweepers, func(i int) error {
		s := e.node(t)
		for range 50 {
			var swept dedup.SweepResult
			err := retry(ctx, s, func() (err error) {
				swept, err = purger(t, s).Purge(ctx,
					dedup.Sweep{Owner: fmt.Sprint("sweeper ", i), Lease: time.Hour, Limit: 10})
				return err
			})
			keys[i] += swept.Keys
			if err != nil || swept.Busy || swept.Done {
				return err
			}
		}
		return errors.New("never done")
	})
	if !slices.Contains(keys[:], len(recs)) {
		t.Errorf("the sweepers forgot %v keys, want %d by one of them", keys, len(recs))
	}
}

func purgeEmpty[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	if swept := sweepAll(t, s, 10); swept.Keys != 0 || swept.Lag != 0 {
		t.Errorf("swept %+v", swept)
	}
	e.must(t, s, recordAt("old", time.Now().Add(-1000*time.Hour), 0), dedup.First)
}

func purgeIsBounded[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	var recs []dedup.Record
	for i := range 100 {
		recs = append(recs, recordAt(fmt.Sprint("k", i), time.Now(), time.Hour))
	}
	verdicts(t, s, recs)
	e.must(t, s, recordAt("young", time.Now(), 10*time.Hour), dedup.First)
	e.Age(t, 2*time.Hour)
	s = e.node(t)
	if swept := sweepAll(t, s, 7); swept.Keys != len(recs) {
		t.Errorf("%d keys forgotten, want %d", swept.Keys, len(recs))
	}
	e.must(t, s, recordAt("young", time.Now(), 10*time.Hour), dedup.Duplicate)
	if swept := sweepAll(t, s, 7); swept.Keys != 0 {
		t.Errorf("a second pass forgot %d keys", swept.Keys)
	}
}

func purgeLease[TTx any](t *testing.T, e *env[TTx]) {
	a, b, ctx := e.node(t), e.node(t), bounded(t)
	e.must(t, a, recordAt("k", time.Now(), time.Hour), dedup.First)
	purge := func(s dedup.Store[TTx], owner string, lease time.Duration, busy bool) dedup.SweepResult {
		t.Helper()
		swept, err := purger(t, s).Purge(ctx, dedup.Sweep{Owner: owner, Lease: lease, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if swept.Busy != busy {
			t.Fatalf("%s: busy %v, want %v", owner, swept.Busy, busy)
		}
		if busy && swept.Keys != 0 {
			t.Fatalf("%s: busy, but forgot %d keys", owner, swept.Keys)
		}
		return swept
	}
	purge(a, "a", 3*time.Hour, false)
	purge(b, "b", 3*time.Hour, true)
	purge(a, "a", 3*time.Hour, false) // renewed
	e.Age(t, 2*time.Hour)
	purge(b, "b", time.Hour, true)
	e.Age(t, 2*time.Hour)
	if swept := purge(b, "b", 3*time.Hour, false); swept.Keys != 1 {
		t.Errorf("the new owner forgot %d keys, want 1", swept.Keys)
	}
	purge(a, "a", 3*time.Hour, true) // the previous owner notices
}

func purgeBesideForget[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	recs := []dedup.Record{recordAt("a", time.Now(), time.Hour), recordAt("b", time.Now(), time.Hour)}
	verdicts(t, s, recs)
	e.Age(t, 2*time.Hour)
	s = e.node(t)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := s.Forget(ctx, tx, recs[0].Key); err != nil {
			return err
		}
		began := time.Now() // a purge that waits for the row would take as long as a claim of this suite
		if swept := sweepAll(t, s, 10); swept.Keys != 1 {
			t.Errorf("%d keys forgotten beside a row that is held, want 1", swept.Keys)
		}
		if took := time.Since(began); took >= patience {
			t.Errorf("the purge waited %v for a row that is held", took)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	if swept := sweepAll(t, s, 10); swept.Keys != 1 {
		t.Errorf("then %d keys forgotten, want the 1 that was held", swept.Keys)
	}
}

// purgeCut cancels purges at any moment: keys that are gone must be from before the horizon.
func purgeCut[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	var recs []dedup.Record
	for i := range 200 {
		recs = append(recs, recordAt(fmt.Sprint("k", i), time.Now(), time.Hour))
	}
	verdicts(t, s, recs)
	// This purge deletes nothing but takes the lease. MySQL keeps the locks of a cancelled purge for a while, and a
	// purge by another owner would take them for those of another sweeper.
	if _, err := purger(t, s).Purge(bounded(t), dedup.Sweep{
		Owner: "suite", Lease: 3 * time.Hour,
		Limit: 10,
	}); err != nil {
		t.Fatal(err)
	}
	const age = 2 * time.Hour
	e.Age(t, age)
	s = e.node(t)
	cut := 0
	for i := range 15 {
		ctx, cancel := timeout(t, time.Duration(i)*200*time.Microsecond)
		_, err := purger(t, s).Purge(ctx, dedup.Sweep{Owner: "suite", Lease: 3 * time.Hour, Limit: 10})
		cancel()
		if err != nil {
			cut++
		}
		for k := range recs {
			r := recs[k]
			r.Time = r.Time.Add(-age)
			if k%10 != i%10 {
				continue
			}
			if v := verdict(t, s, r).Verdict; v != dedup.Duplicate && v != dedup.Unprovable {
				t.Fatalf("after a purge that was cut short (error %v): %v is %v, want duplicate or unprovable", err,
					r.Key, v)
			}
		}
	}
	if cut == 0 {
		t.Error("no purge was cut short: this case tried nothing")
	}
	sweepAll(t, s, 50)
}
