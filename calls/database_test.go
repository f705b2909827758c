package calls_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup/driver"
)

// Each step is an answer: the server, at a second; and the second until which Find is not asked then.
func TestWhenFindIsAskedAfterAFailover(t *testing.T) {
	cfg := validConfig()
	cfg.Timeout, cfg.Settles = 4*time.Second, 6*time.Second
	type step struct {
		server    string
		at, quiet int
	}
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	for name, steps := range map[string][]step{
		"one server":                {{"a", 0, 0}, {"a", 60, 0}, {"a", 59, 0}},
		"a failover":                {{"a", 0, 0}, {"b", 60, 70}, {"b", 61, 70}, {"b", 80, 70}},
		"back again":                {{"a", 0, 0}, {"b", 60, 70}, {"a", 100, 110}},
		"servers answer in turn":    {{"a", 0, 0}, {"b", 1, 11}, {"a", 2, 11}, {"b", 3, 11}, {"b", 12, 11}},
		"the clock was set back":    {{"a", 100, 0}, {"a", 93, 103}, {"a", 94, 103}},
		"it was set back by little": {{"a", 100, 0}, {"a", 94, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var answers []driver.Call
			var want []string
			for _, s := range steps {
				answers = append(answers, driver.Call{Server: s.server, Now: second(s.at)})
				if s.quiet == 0 {
					want = append(want, fmt.Sprint(time.Time{}))
				} else {
					want = append(want, fmt.Sprint(second(s.quiet)))
				}
			}
			for i, got := range calls.Quiet(cfg, answers...) {
				if fmt.Sprint(got) != want[i] {
					t.Errorf("answer %d: until %v, want %v", i, got, want[i])
				}
			}
		})
	}
}
