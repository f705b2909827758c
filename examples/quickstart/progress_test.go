package main

import (
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	p := newProgress(200, start)
	p.report(report{Generation: 3}, at(1))
	p.report(report{Spans: []span{{0, 0, 40}, {1, 0, 10}}}, at(2))
	p.report(report{Generation: 5, Spans: []span{{0, 40, 50}}}, at(3))
	// a killed worker had not reported 10 of partition 1
	p.committed([]int64{50, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, at(10))
	p.report(report{Spans: []span{{0, 45, 60}}}, at(11)) // 5 again
	p.report(report{Spans: []span{{1, 20, 30}}}, at(12))
	p.report(report{Spans: []span{{1, 0, 5}}}, at(14)) // 5 again, nothing new

	if got := p.finished(); got != 90 {
		t.Errorf("finished %d, want 90", got)
	}
	if p.redelivery != 10 {
		t.Errorf("redelivered %d, want 10", p.redelivery)
	}
	if p.rebalances() != 2 {
		t.Errorf("%d rebalances, want 2", p.rebalances())
	}
	if p.stall != 7*time.Second || p.idle(at(20)) != 8*time.Second {
		t.Errorf("longest stall %v, idle %v; want 7s, 8s", p.stall, p.idle(at(20)))
	}

	if p.relayed(7, at(21)) || p.relayed(5, at(23)) || p.relayed(5, at(24)) {
		t.Error("events are pending, and it is the end")
	}
	if p.end != at(21) || p.idle(at(25)) != 2*time.Second {
		t.Errorf("everything was committed at %v, want %v; idle %v, want 2s", p.end, at(21), p.idle(at(25)))
	}
	if !p.relayed(0, at(26)) {
		t.Error("no event is pending, and it is not the end")
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
