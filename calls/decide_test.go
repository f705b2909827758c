package calls_test

import (
	"context"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
)

// The table reads: a call that was enqueued `age` ago, with this record, is treated so.
func TestDecide(t *testing.T) {
	const day, minute = 24 * time.Hour, time.Minute
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	content := dedup.FingerprintOf([]byte("content"))
	tried := func(first, ended time.Duration) driver.Call {
		return driver.Call{
			Token: 1, Unanswered: 1, First: ago(first), Last: ago(ended + 5*time.Second), Until: ago(ended),
			Fingerprint: content,
		}
	}
	with := func(c driver.Call, change func(*driver.Call)) driver.Call { change(&c); return c }
	none := driver.Call{}
	config := func(keeps time.Duration, find bool) calls.Config[*deduptest.Tx] {
		cfg := validConfig()
		cfg.Keeps = keeps
		if find {
			cfg.Find = func(context.Context, calls.Call) (calls.Result, bool, error) { return nil, false, nil }
		}
		return cfg
	}
	keys, keysFind, bare, bareFind := config(day, false), config(day, true), config(0, false), config(0, true)
	for _, tt := range []struct {
		name   string
		config calls.Config[*deduptest.Tx]
		age    time.Duration
		record driver.Call
		want   string
	}{
		{"it was never tried", keys, minute, none, "Do"},
		{"it was never tried; there are no keys", bare, time.Hour, none, "Do"},
		// A failover may have taken the record of a try, and the message too: then it is enqueued anew, and young.
		{"it was never tried; there are no keys, but Find", bareFind, 0, none, "Find"},
		{"no record, but a lost try would be as old as the key's memory", keysFind, day - 2*minute - 5*time.Second, none, "Find"},
		{"the same, a moment earlier", keysFind, day - 2*minute - 6*time.Second, none, "Do"},
		{"the same without Find", keys, day, none, "in doubt"},
		{"no record, older than claims are kept", bare, 15 * day, none, "in doubt"},

		{"the key is remembered", keys, time.Hour, tried(time.Hour, 0), "Do"},
		{"the key is remembered, and Find is not needed", keysFind, time.Hour, tried(time.Hour, 0), "Do"},
		{"the key is forgotten", keys, day, tried(day, time.Hour), "in doubt"},
		{"the key is forgotten, and Find knows", keysFind, day, tried(day, time.Hour), "Find"},
		{"the key is forgotten, and a request may be under way", keysFind, day, tried(day, 59*time.Second), "wait"},
		{"a message with the same ID was tried before this one", keys, minute, tried(day, day), "in doubt"},
		{
			"the clock was ahead at the latest try", bareFind, minute,
			with(tried(minute, 0), func(c *driver.Call) { c.Last, c.Until = now.Add(day), now.Add(day) }), "Find",
		},
		{
			"the clock was ahead at a try before the latest", bareFind, minute,
			with(tried(minute, 0), func(c *driver.Call) { c.Until = now.Add(day) }), "Find",
		},
		{"there are no keys", bare, minute, tried(minute, 30*time.Second), "in doubt"},
		{"there are no keys, and a request may be under way", bareFind, minute, tried(minute, 30*time.Second), "wait"},
		{"there are no keys, and no request is under way", bareFind, time.Hour, tried(time.Hour, minute), "Find"},

		{
			"all tries were answered: they had no effect", bare, minute,
			with(tried(minute, 0), func(c *driver.Call) { c.Unanswered = 0 }), "Do",
		},
		{"the clock was set back since", keys, -2 * minute, none, "in doubt"},
		{"the clock was set back, by less than Settles", keys, -59 * time.Second, none, "Do"},
		{"the clock was set back, and Find knows", keysFind, -2 * minute, tried(-2*minute, -2*minute), "Find"},
		{"the clock was set back, and there are no keys", bare, -2 * minute, none, "in doubt"},

		{"it is settled", keys, minute, with(none, func(c *driver.Call) { c.Settled, c.Claimed = true, content }), "done already"},
		{
			"it is settled, and a try is recorded", keys, 2 * day,
			with(tried(day, day), func(c *driver.Call) { c.Settled, c.Claimed = true, content }), "done already",
		},
		{
			"another call with this ID is settled", keys, minute,
			with(none, func(c *driver.Call) { c.Settled, c.Claimed = true, dedup.FingerprintOf([]byte("other")) }), "refuse",
		},
		{
			"another call with this ID was tried", keys, minute,
			with(tried(minute, 0), func(c *driver.Call) { c.Fingerprint = dedup.FingerprintOf([]byte("other")) }), "refuse",
		},
		{
			"Done failed, or a person says that it has happened", bare, day,
			with(tried(day, day), func(c *driver.Call) { c.Verdict = driver.CallHappened }), "Done",
		},
		{
			"a person says that it has not happened", bare, day,
			with(tried(day, day), func(c *driver.Call) { c.Verdict = driver.CallAbsent }), "Do, only try",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.record.Now = now
			step, until := calls.Decide(tt.record, calls.Database{}, ago(tt.age), content, calls.RulesOf(tt.config))
			if got := calls.Steps[step]; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			// After a failover, a request may be under way whose record was lost.
			step, _ = calls.Decide(tt.record, calls.After(now.Add(time.Second)), ago(tt.age), content, calls.RulesOf(tt.config))
			if got := calls.Steps[step]; tt.record.Unanswered == 0 && tt.want == "Find" && got != "wait" || tt.want != "Find" && got != tt.want {
				t.Errorf("after a failover: %s", got)
			}
			if tt.want == "wait" && !until.Equal(tt.record.Until.Add(minute)) {
				t.Errorf("it waits until %v", until)
			}
		})
	}
}
