package claims_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

func rec(id, content string) dedup.Record {
	r := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}}
	if content != "" {
		r.Fingerprint = dedup.FingerprintOf([]byte(content))
	}
	return r
}

func TestPlanSortsAndClaimsEachKeyOnce(t *testing.T) {
	recs := []dedup.Record{rec("a", ""), rec("b", ""), rec("a", ""), rec("c", ""), rec("b", "")}
	plan, err := claims.NewPlan(recs)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Rows) != 3 {
		t.Errorf("%d rows for 3 keys", len(plan.Rows))
	}
	if !slices.IsSortedFunc(plan.Rows, func(a, b claims.Row) int { return a.KeyHash.Compare(b.KeyHash) }) {
		t.Error("rows are not in the order of KeyHash: two batches may deadlock")
	}
}

// Each record of a call gets the answer that it would get in a call of its own, one call after another.
func TestAnswersRepeats(t *testing.T) {
	x, y := dedup.FingerprintOf([]byte("x")), dedup.FingerprintOf([]byte("y"))
	until := time.Unix(5000, 0)
	for _, test := range []struct {
		name string
		recs []dedup.Record
		row  dedup.Claim // the answer found for key a
		want []dedup.Claim
	}{
		{
			"first once",
			[]dedup.Record{rec("a", "x"), rec("a", "x")},
			dedup.Claim{Verdict: dedup.First, Fingerprint: x, ExpiresAt: until},
			[]dedup.Claim{{Verdict: dedup.First}, {Verdict: dedup.Duplicate, Fingerprint: x, ExpiresAt: until}},
		},
		{
			"other content behind a first",
			[]dedup.Record{rec("a", "x"), rec("a", "y")},
			dedup.Claim{Verdict: dedup.First, Fingerprint: x, ExpiresAt: until},
			[]dedup.Claim{{Verdict: dedup.First}, {Verdict: dedup.Mismatch, Fingerprint: x, ExpiresAt: until}},
		},
		{
			"the row decides, not the record before",
			[]dedup.Record{rec("a", "x"), rec("a", "y")},
			dedup.Claim{Verdict: dedup.Mismatch, Fingerprint: y, Result: []byte("r")},
			[]dedup.Claim{
				{Verdict: dedup.Mismatch, Fingerprint: y, Result: []byte("r")},
				{Verdict: dedup.Duplicate, Fingerprint: y, Result: []byte("r")},
			},
		},
		{
			"any content",
			[]dedup.Record{rec("a", ""), rec("a", "x"), rec("a", "y")},
			dedup.Claim{Verdict: dedup.First},
			[]dedup.Claim{{Verdict: dedup.First}, {Verdict: dedup.Duplicate}, {Verdict: dedup.Duplicate}},
		},
		{
			"unprovable claims nothing",
			[]dedup.Record{rec("a", "x"), rec("a", "x")},
			dedup.Claim{Verdict: dedup.Unprovable, Fingerprint: x},
			[]dedup.Claim{{Verdict: dedup.Unprovable}, {Verdict: dedup.Unprovable}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := claims.NewPlan(test.recs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, plan.Answers([]dedup.Claim{test.row})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnswersAreInTheOrderOfTheRecords(t *testing.T) {
	var recs []dedup.Record
	for i := range 50 {
		recs = append(recs, rec(fmt.Sprint("k", i%30), fmt.Sprint(i%30)))
	}
	plan, err := claims.NewPlan(recs)
	if err != nil {
		t.Fatal(err)
	}
	found := make([]dedup.Claim, len(plan.Rows))
	for i, row := range plan.Rows {
		found[i] = dedup.Claim{
			Verdict: dedup.Duplicate, Fingerprint: row.Record.Fingerprint,
			Result: []byte(row.Record.Key.ID),
		}
	}
	for i, c := range plan.Answers(found) {
		if string(c.Result) != recs[i].Key.ID {
			t.Errorf("answer %d is of %s, want %s", i, c.Result, recs[i].Key.ID)
		}
		if c.Verdict != dedup.Duplicate {
			t.Errorf("answer %d is %v", i, c.Verdict)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	future := rec("a", "")
	future.Time = time.Unix(time.Now().UnixMilli(), 0) // milliseconds mistaken for seconds
	for _, test := range []struct {
		name string
		rec  dedup.Record
		want error
	}{
		{"no key", rec("", ""), dedup.ErrNoKey},
		{"a bad key", rec("a\x00b", ""), dedup.ErrBadKey},
		{"a time that no database keeps", future, dedup.ErrFuture},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := claims.NewPlan([]dedup.Record{rec("ok", ""), test.rec}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// If a row expired a fraction of a microsecond too early, a sweep would delete it while the horizon still counts its
// message as new.
func TestTimesAreRoundedUp(t *testing.T) {
	at := time.Date(2025, 1, 2, 3, 4, 5, 123_456_001, time.UTC)
	r := rec("a", "")
	r.Time, r.Window = at, dedup.MinWindow
	plan, err := claims.NewPlan([]dedup.Record{r})
	if err != nil {
		t.Fatal(err)
	}
	expires := time.UnixMicro(plan.Rows[0].Record.Time.UnixMicro()).Add(r.Window)
	horizon := driver.Horizon(expires, []driver.WindowUse{{Window: r.Window, FirstRun: at.Add(-time.Second), UsedUntil: at.Add(driver.UseFor)}})
	if driver.Provable(r.Time, horizon) {
		t.Errorf("a message of %v is taken for new though its row was forgotten at %v", at, expires)
	}
	if got := claims.Ceil(time.UnixMicro(5)); !got.Equal(time.UnixMicro(5)) {
		t.Errorf("a whole microsecond became %v", got)
	}
	if !claims.Ceil(time.Time{}).IsZero() {
		t.Error("the zero time is no longer zero")
	}
}

func TestYoung(t *testing.T) {
	clock := time.Now()
	for _, test := range []struct {
		name string
		time time.Time
		want bool
	}{
		{"no time", time.Time{}, true},
		{"now", clock, true},
		{"a little less than the floor", clock.Add(-dedup.MinWindow + 1), true},
		{"the floor", clock.Add(-dedup.MinWindow), false},
	} {
		if got := claims.Young(test.time, clock); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
