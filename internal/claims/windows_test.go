package claims_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

func TestWindowsAreDistinctSortedAndRoundedDown(t *testing.T) {
	in := func(consumer string, window time.Duration) dedup.Record {
		return dedup.Record{Key: dedup.Key{Consumer: consumer, ID: window.String()}, Window: window}
	}
	plan, err := claims.NewPlan([]dedup.Record{
		in("b", 2*time.Hour), in("a", 3*time.Hour+time.Second-1),
		in("b", 2*time.Hour), in("a", 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []claims.Window{{"a", 3 * 3600}, {"a", 15 * 24 * 3600}, {"b", 2 * 3600}}
	if diff := cmp.Diff(want, plan.Windows()); diff != "" {
		t.Error(diff)
	}
}

func TestLeases(t *testing.T) {
	var (
		leases claims.Leases
		w      = claims.Window{Consumer: "billing", Seconds: 3600}
		other  = claims.Window{Consumer: "billing", Seconds: 7200}
		here   = time.Unix(1_000_000, 0) // this machine's clock, days behind the database's
		there  = time.Unix(2_000_000, 0)
		until  = there.Add(driver.UseFor)
	)
	if due := leases.Due([]claims.Window{w, other}, here); len(due) != 2 {
		t.Fatalf("an unknown window is not due: %v", due)
	}
	if leases.Cover([]claims.Window{w}, there) {
		t.Error("a claim under a window that was never registered is covered")
	}
	leases.Registered(w, until, here)
	if due := leases.Due([]claims.Window{w, other}, here.Add(driver.UseFor/2-1)); !cmp.Equal(due,
		[]claims.Window{other}) {
		t.Errorf("due before half of the lease: %v", due)
	}
	if due := leases.Due([]claims.Window{w}, here.Add(driver.UseFor/2)); len(due) != 1 {
		t.Error("not due after half of the lease")
	}
	if !leases.Cover([]claims.Window{w}, until) {
		t.Error("a claim within the lease is not covered")
	}
	if leases.Cover([]claims.Window{w}, until.Add(1)) {
		t.Error("a claim after the lease is covered")
	}
	if due := leases.Due([]claims.Window{w}, here); len(due) != 1 {
		t.Error("not due though a claim overran it")
	}
}

// When two goroutines register the same window, a later answer with an earlier end must not replace the better one.
func TestLeasesKeepTheLatest(t *testing.T) {
	var leases claims.Leases
	w, at := claims.Window{Consumer: "billing", Seconds: 3600}, time.Unix(1000, 0)
	leases.Registered(w, at.Add(time.Hour), at)
	leases.Registered(w, at, at)
	if !leases.Cover([]claims.Window{w}, at.Add(time.Minute)) {
		t.Error("an older registration replaced a newer one")
	}
}
