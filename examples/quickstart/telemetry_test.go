package main

import "testing"

// The counters that Prometheus scrapes are those of the audit, although workers are killed. What a worker has committed
// and not yet reported when it is killed is missing: the batches that its partitions commit at that moment, each of up
// to 30 or so messages. If workers kept their own counters, those of a killed one would be missing altogether.
func TestTelemetry(t *testing.T) {
	r := runDemo(t, "-messages", "400", "-telemetry", "127.0.0.1:0")
	r.check(t, 400)
	if missing := r.Effects - r.Scraped.Processed; missing < 0 || missing > r.Effects/3 {
		t.Errorf("%d processed, %d effects, %d kills", r.Scraped.Processed, r.Effects, r.Kills)
	}
	if r.Scraped.Duplicates < r.DuplicatesSuppressed/2 || r.Scraped.Parked < r.PoisonParked+r.MismatchesParked-r.Kills {
		t.Errorf("scraped %+v, %d duplicates suppressed, %d parked", *r.Scraped, r.DuplicatesSuppressed,
			r.PoisonParked+r.MismatchesParked)
	}
}
