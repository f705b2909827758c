package claims_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// table is a Driver with its rows in memory.
type table struct {
	claim     *claims.Claim
	clock     time.Time
	rows      map[dedup.KeyHash]claims.Stored
	vanish    int // how often a sweep deletes the existing rows before the claim reads them
	forgotten time.Time
	uses      map[string][]driver.WindowUse

	calls []string
}

func (d *table) Insert(_ context.Context, rows []claims.Row) error {
	d.calls = append(d.calls, "insert")
	for _, row := range rows {
		if _, known := d.rows[row.KeyHash]; known {
			continue
		}
		d.claim.Inserted[row.KeyHash], d.claim.Clock = true, d.clock
	}
	return nil
}

func (d *table) Existing(_ context.Context, rows []claims.Row) error {
	d.calls = append(d.calls, "read")
	if d.vanish > 0 {
		d.vanish--
		clear(d.rows)
	}
	for _, row := range rows {
		if stored, known := d.rows[row.KeyHash]; known {
			found, err := stored.Claim(row.Record.Key)
			if err != nil {
				return err
			}
			d.claim.Found[row.KeyHash] = found
		}
	}
	return nil
}

func (d *table) Forgotten(_ context.Context, consumers []string) (time.Time, map[string][]driver.WindowUse, error) {
	d.calls = append(d.calls, "horizon of "+consumers[0])
	return d.forgotten, d.uses, nil
}

func (d *table) Forget(_ context.Context, keys []dedup.KeyHash) error {
	d.calls = append(d.calls, "forget")
	for _, k := range keys {
		delete(d.rows, k)
	}
	return nil
}

func (d *table) Flush(context.Context) error {
	d.calls = append(d.calls, "flush")
	return nil
}

func TestMake(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(id string, age time.Duration) dedup.Record {
		r := rec(id, id)
		r.Time = now.Add(-age)
		return r
	}
	known := func(ids ...string) map[dedup.KeyHash]claims.Stored {
		rows := map[dedup.KeyHash]claims.Stored{}
		for _, id := range ids {
			k := rec(id, id).Key
			rows[k.Hash()] = claims.Stored{
				Key: k.Hash(), ExpiresAt: now.Add(time.Hour), Consumer: &k.Consumer,
				ID: &k.ID,
			}
		}
		return rows
	}
	horizon := now.Add(-100 * 24 * time.Hour)
	used := []driver.WindowUse{{Window: time.Second, FirstRun: now.AddDate(-1, 0, 0), UsedUntil: now.Add(time.Hour)}}
	other := rec("another", "x").Key
	for _, test := range []struct {
		name    string
		table   table
		until   time.Time // the end of the window's registration; zero: far in the future
		recs    []dedup.Record
		want    []dedup.Verdict
		calls   []string
		err     error
		anyCall bool
	}{
		{name: "nothing", calls: []string{"insert"}},
		{name: "new", recs: []dedup.Record{at("a", 0)}, want: []dedup.Verdict{dedup.First}, calls: []string{"insert"}},
		{
			name: "known", table: table{rows: known("a")}, recs: []dedup.Record{at("a", 0)},
			want: []dedup.Verdict{dedup.Duplicate}, calls: []string{"insert", "read", "flush"},
		},
		{
			name: "one of two is known", table: table{rows: known("b")}, recs: []dedup.Record{at("a", 0), at("b", 0)},
			want: []dedup.Verdict{dedup.First, dedup.Duplicate}, calls: []string{"insert", "read", "flush"},
		},
		{
			name: "a row vanishes before it is read", table: table{rows: known("a"), vanish: 1},
			recs: []dedup.Record{at("a", 0)},
			want: []dedup.Verdict{dedup.First}, calls: []string{"insert", "read", "insert"},
		},
		{
			name: "a row of another business key", recs: []dedup.Record{at("a", 0)}, err: dedup.ErrKeyCollision,
			anyCall: true,
			table:   table{rows: map[dedup.KeyHash]claims.Stored{rec("a", "a").Key.Hash(): {Consumer: &other.Consumer, ID: &other.ID}}},
		},
		{
			name: "old, and nothing was ever forgotten", recs: []dedup.Record{at("a", 200*24*time.Hour)},
			want: []dedup.Verdict{dedup.First}, calls: []string{"insert", "horizon of billing"},
		},
		{
			name: "older than the horizon", table: table{
				forgotten: horizon,
				uses:      map[string][]driver.WindowUse{"billing": used},
			},
			recs:  []dedup.Record{at("a", 200*24*time.Hour), at("b", 0)},
			want:  []dedup.Verdict{dedup.Unprovable, dedup.First},
			calls: []string{"insert", "horizon of billing", "forget"},
		},
		{
			name: "registered for too short a time", until: now.Add(-time.Second), recs: []dedup.Record{at("a", 0)},
			err: claims.ErrAgain, calls: []string{"insert"},
		},
		{
			name: "the registration ran out, but nothing was inserted", until: now.Add(-time.Second),
			table: table{rows: known("a")},
			recs:  []dedup.Record{at("a", 0)}, want: []dedup.Verdict{dedup.Duplicate},
			calls: []string{"insert", "read", "flush"},
		},
		{
			name: "a time ahead of both clocks", recs: []dedup.Record{at("a", -365*24*time.Hour)}, err: dedup.ErrFuture,
			calls: []string{"insert"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := claims.NewPlan(test.recs)
			if err != nil {
				t.Fatal(err)
			}
			var leases claims.Leases
			until := test.until
			if until.IsZero() {
				until = now.Add(24 * time.Hour)
			}
			err = leases.Use(plan.Windows(), func(claims.Window) (time.Time, error) { return until, nil })
			if err != nil {
				t.Fatal(err)
			}
			d := test.table
			d.clock = now
			d.claim = &claims.Claim{Owner: "test", Plan: plan, Windows: &leases, Now: func() time.Time { return now }}
			answers, err := d.claim.Make(t.Context(), &d)
			if !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			var verdicts []dedup.Verdict
			for _, a := range answers {
				verdicts = append(verdicts, a.Verdict)
			}
			if diff := cmp.Diff(test.want, verdicts, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if !test.anyCall && !slices.Equal(d.calls, test.calls) {
				t.Errorf("calls %q, want %q", d.calls, test.calls)
			}
		})
	}
}

// A window that the transaction registered itself needs no committed registration, until its own registration expires.
func TestMakeInATransactionThatRegistered(t *testing.T) {
	now := time.Now()
	plan, err := claims.NewPlan([]dedup.Record{rec("a", "x")})
	if err != nil {
		t.Fatal(err)
	}
	for until, want := range map[time.Time]error{now.Add(time.Hour): nil, now.Add(-time.Hour): claims.ErrAgain} {
		d := table{clock: now, claim: &claims.Claim{Owner: "test", Plan: plan, Windows: &claims.Leases{}, Now: time.Now}}
		d.claim.Registered = map[claims.Window]time.Time{plan.Windows()[0]: until}
		if _, err := d.claim.Make(t.Context(), &d); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestRowsThatVanishAgainAndAgain(t *testing.T) {
	plan, err := claims.NewPlan([]dedup.Record{rec("a", "x")})
	if err != nil {
		t.Fatal(err)
	}
	c := &claims.Claim{Owner: "test", Plan: plan, Windows: &claims.Leases{}, Now: time.Now}
	if _, err := c.Make(t.Context(), swept{}); !claims.Owner("test").Caused(err) {
		t.Errorf("%v, want an error of the database", err)
	}
}

// swept is a Driver whose existing rows are always gone when they are read.
type swept struct{ *table }

func (swept) Insert(context.Context, []claims.Row) error   { return nil }
func (swept) Existing(context.Context, []claims.Row) error { return nil }
