package opstest

import (
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

func probeCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{"a probe finds what a claim would be told", testProbe[TTx]},
		{"a probe leaves nothing behind", testProbeLeavesNothing[TTx]},
		{"a probe of a key in flight", testProbeInFlight[TTx]},
	}
}

func record(id string) dedup.Record {
	return dedup.Record{Key: dedup.Key{Consumer: name, ID: id}, Fingerprint: dedup.FingerprintOf([]byte("payload of " + id))}
}

func testProbe[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	c := e.consumer(t, s, nil)
	if err := c.Process(bounded(t), message("order-1", "orders")); err != nil {
		t.Fatal(err)
	}
	other := record("order-1")
	other.Fingerprint = dedup.FingerprintOf([]byte("other"))
	for _, tc := range []struct {
		rec  dedup.Record
		want dedup.Verdict
	}{{record("order-1"), dedup.Duplicate}, {other, dedup.Mismatch}, {record("order-2"), dedup.First}} {
		p, err := s.Operator().Probe(bounded(t), tc.rec)
		if err != nil || p.InFlight || p.Claim.Verdict != tc.want {
			t.Errorf("%v: %+v, %v; want %v", tc.rec.Key, p, err, tc.want)
		}
	}
}

func testProbeLeavesNothing[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	for range 2 {
		p, err := s.Operator().Probe(bounded(t), record("order-1"))
		if err != nil || p.Claim.Verdict != dedup.First {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if _, found, err := s.Lookup(bounded(t), record("order-1").Key); found || err != nil {
		t.Errorf("a claim is left, %v", err)
	}
	status, err := s.Operator().Status(bounded(t))
	if err != nil || len(status.Consumers) != 0 {
		t.Errorf("a window is registered: %+v, %v", status.Consumers, err)
	}
}

func testProbeInFlight[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	if err := e.consumer(t, s, nil).Process(bounded(t), message("order-0", "orders")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := s.InTx(bounded(t), []dedup.Record{record("order-1")}, func(TTx, []dedup.Claim) error {
		prober := e.node(t).Operator()
		p, err := prober.Probe(bounded(t), record("order-1"))
		if err != nil || !p.InFlight || p.WholeDatabase != e.oneWriter {
			t.Errorf("%+v, %v; want it in flight", p, err)
		}
		switch {
		case e.oneWriter: // nothing tells who writes
		case p.Holder == nil:
			t.Error("the database does not tell who holds the key")
		case p.Holder.PID == 0 || p.Holder.Age <= 0 || p.Holder.Age > time.Since(began)+time.Second ||
			p.Holder.State != "idle in transaction":
			t.Errorf("holder %+v", p.Holder)
		}
		p, err = prober.Probe(bounded(t), record("order-0")) // another key
		if err != nil || p.InFlight || p.Claim.Verdict != dedup.Duplicate || p.Holder != nil {
			t.Errorf("a key that is committed: %+v, %v", p, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
