package deduptest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// archiveCases are about PurgeArchived.
func archiveCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "expired keys are archived as they were stored, and then forgotten", run: archiveKeeps[TTx]},
		{name: "a purge whose archive fails forgets nothing", run: archiveFails[TTx]},
		{name: "each key that is forgotten was archived", run: archiveAll[TTx]},
		{name: "a key that is claimed anew while it is archived stays", run: archiveBesideClaim[TTx]},
		{name: "a compact store archives hashes", run: archiveCompact[TTx]},
	}
}

// archiver is a purger with the sweep that the cases use.
type archiver struct {
	dedup.Archiver
	by dedup.Sweep
}

func archiverOf[TTx any](t *testing.T, s dedup.Store[TTx], limit int) archiver {
	t.Helper()
	a, ok := s.(dedup.Archiver)
	hook(t, "dedup.Archiver", !ok)
	return archiver{a, dedup.Sweep{Owner: "suite", Lease: time.Hour, Limit: limit}}
}

// all archives until the end of the table. It fails if a key is archived twice, which happens only after an error.
func (a archiver) all(ctx context.Context, t *testing.T) map[dedup.KeyHash]dedup.Expired {
	t.Helper()
	archived := map[dedup.KeyHash]dedup.Expired{}
	keys := 0
	for range 1000 {
		swept, err := a.PurgeArchived(ctx, a.by, func(_ context.Context, expired []dedup.Expired) error {
			if len(expired) == 0 || len(expired) > a.by.Limit {
				t.Errorf("archive is called with %d keys, and the limit is %d", len(expired), a.by.Limit)
			}
			for _, e := range expired {
				if _, twice := archived[e.Hash]; twice {
					t.Errorf("%v is archived twice", e.Key)
				}
				archived[e.Hash] = e
			}
			return nil
		})
		if err != nil || swept.Busy {
			t.Fatalf("%+v, error %v", swept, err)
		}
		if keys += swept.Keys; swept.Done {
			if keys != len(archived) {
				t.Errorf("%d keys were archived, and %d forgotten", len(archived), keys)
			}
			return archived
		}
	}
	t.Fatal("purge is never done")
	return nil
}

func archiveKeeps[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	rs, ok := s.(driver.ResultStore[TTx])
	hook(t, "driver.ResultStore", !ok)
	rich := recordAt("rich", time.Now(), time.Hour)
	rich.Key.Tenant = "t"
	plain := recordAt("plain", time.Now(), time.Hour)
	plain.Fingerprint = dedup.Fingerprint{}
	if err := s.InTx(ctx, []dedup.Record{rich, plain}, func(tx TTx, _ []dedup.Claim) error {
		return rs.SaveResult(ctx, tx, rich.Key, []byte("a response"))
	}); err != nil {
		t.Fatal(err)
	}
	young := recordAt("young", time.Now(), 20*time.Hour)
	e.must(t, s, young, dedup.First)
	const age = 2 * time.Hour
	e.Age(t, age)
	s = e.node(t)
	got := archiverOf(t, s, 100).all(ctx, t)
	want := map[dedup.KeyHash]dedup.Expired{
		rich.Key.Hash():  {Hash: rich.Key.Hash(), Key: rich.Key, Fingerprint: rich.Fingerprint, Result: []byte("a response")},
		plain.Key.Hash(): {Hash: plain.Key.Hash(), Key: plain.Key},
	}
	if len(got) != len(want) {
		t.Errorf("%d keys are archived, want %d", len(got), len(want))
	}
	for hash, w := range want {
		g := got[hash]
		if g.ExpiresAt = (time.Time{}); !reflect.DeepEqual(g, w) {
			t.Errorf("archived %+v, want %+v", g, w)
		}
	}
	for _, r := range []dedup.Record{rich, plain} {
		expired := r.Time.Add(time.Hour - age)
		if off := got[r.Key.Hash()].ExpiresAt.Sub(expired); off < -time.Second || off > time.Since(r.Time)+time.Second {
			t.Errorf("%v expired %v later than %v", r.Key, off, expired)
		}
		r.Time = r.Time.Add(-age)
		e.must(t, s, r, dedup.Unprovable)
	}
	e.must(t, s, young, dedup.Duplicate)
	if again := archiverOf(t, s, 100).all(ctx, t); len(again) != 0 {
		t.Errorf("%d keys are archived again", len(again))
	}
}

func archiveFails[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	r := recordAt("k", time.Now(), time.Hour)
	e.must(t, s, r, dedup.First)
	const age = 2 * time.Hour
	e.Age(t, age)
	s = e.node(t)
	full := errors.New("the disk of the archive is full")
	a := archiverOf(t, s, 10)
	for range 2 {
		asked := 0
		swept, err := a.PurgeArchived(ctx, a.by, func(context.Context, []dedup.Expired) error {
			asked++
			return full
		})
		if !errors.Is(err, full) || swept.Keys != 0 || asked != 1 {
			t.Errorf("%+v, error %v, archive was called %d times", swept, err, asked)
		}
		r := r
		r.Time = r.Time.Add(-age)
		e.must(t, s, r, dedup.Duplicate)
	}
	if got := a.all(ctx, t); len(got) != 1 {
		t.Errorf("then %d keys are archived, want 1", len(got))
	}
}

func archiveAll[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	var recs []dedup.Record
	for i := range 200 {
		recs = append(recs, recordAt(fmt.Sprint("k", i), time.Now(), time.Duration(1+i%3)*time.Hour))
	}
	verdicts(t, s, recs)
	e.Age(t, 150*time.Minute) // two thirds have expired
	s = e.node(t)
	got := archiverOf(t, s, 7).all(ctx, t)
	for i, r := range recs {
		if _, archived := got[r.Key.Hash()]; archived != (i%3 < 2) {
			t.Errorf("%v is archived: %v", r.Key, archived)
		}
	}
}

// No transaction is open while keys are archived: others may write them.
func archiveBesideClaim[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	again, gone := recordAt("again", time.Now(), time.Hour), recordAt("gone", time.Now(), time.Hour)
	verdicts(t, s, []dedup.Record{again, gone})
	e.Age(t, 2*time.Hour)
	s = e.node(t)
	a := archiverOf(t, s, 10)
	swept, err := a.PurgeArchived(ctx, a.by, func(_ context.Context, expired []dedup.Expired) error {
		if len(expired) != 2 {
			t.Errorf("%d keys are archived, want 2", len(expired))
		}
		if err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
			return s.Forget(ctx, tx, again.Key)
		}); err != nil {
			return err
		}
		again.Time = time.Now()
		e.must(t, s, again, dedup.First)
		return nil
	})
	if err != nil || swept.Keys != 1 {
		t.Errorf("%+v, error %v; want 1 key", swept, err)
	}
	e.must(t, s, again, dedup.Duplicate)
	gone.Time = time.Time{}
	e.must(t, s, gone, dedup.First)
}

func archiveCompact[TTx any](t *testing.T, e *env[TTx]) {
	o := e.options()
	o.Compact = true
	r := recordAt("k", time.Now(), time.Hour)
	e.must(t, e.Open(t, o), r, dedup.First)
	e.Age(t, 2*time.Hour)
	got := archiverOf(t, e.Open(t, o), 10).all(bounded(t), t)
	if found, ok := got[r.Key.Hash()]; !ok || found.Key != (dedup.Key{}) || found.Fingerprint != r.Fingerprint {
		t.Errorf("archived: %+v", got)
	}
}
