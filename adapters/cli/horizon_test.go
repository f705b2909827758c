package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/ops"
)

// The database keeps one expiry of deleted claims for all consumers: the horizon of one with a short window moves
// further.
func TestHorizonOfOthersIsNotMovedPastNow(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	consumers := func(others ...time.Duration) ops.Status {
		s := ops.Status{Now: now}
		for i, window := range append([]time.Duration{40 * day}, others...) {
			s.Consumers = append(s.Consumers, ops.ConsumerStatus{
				Name:    []string{"billing", "mails"}[i],
				Windows: []ops.Window{{Window: window, FirstRun: now.Add(-100 * day), UsedUntil: now.Add(day)}},
			})
		}
		return s
	}
	for name, c := range map[string]struct {
		status ops.Status
		refuse string
	}{
		"alone":                  {consumers(), ""},
		"beside the same window": {consumers(40 * day), ""},
		"beside a longer window": {consumers(41 * day), ""},
		"beside a shorter one":   {consumers(2 * day), "also move the horizon of mails to 2026-11-27 13:00:00Z, because its window is shorter than that of billing: until 2026-11-27 14:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			move, err := horizonFor(c.status, "billing", now.Add(-2*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			err = parksNewMessages(c.status, "billing", horizonsAfter(c.status, move))
			if (err != nil) != (c.refuse != "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("%v, want %q", err, c.refuse)
			}
			if err != nil && ExitCode(err) != ExitRefused {
				t.Errorf("exit code %d, want %d", ExitCode(err), ExitRefused)
			}
		})
	}
}

// A consumer that has run for a shorter time than that may have the keys of a table that it did not write.
func TestHorizonBeforeTheFirstRun(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	of := func(first, used time.Time) ops.Status {
		return ops.Status{Now: now, Consumers: []ops.ConsumerStatus{
			{Name: "billing", Windows: []ops.Window{{Window: 15 * day, FirstRun: first, UsedUntil: used}}},
			{Name: "mails", Windows: []ops.Window{{Window: 15 * day, FirstRun: now.Add(-day), UsedUntil: now.Add(day)}}},
		}}
	}
	to := now.Add(-20 * day)
	s := of(now.Add(-time.Hour), now.Add(day))
	move, err := horizonFor(s, "billing", to)
	if err != nil {
		t.Fatal(err)
	}
	if after := horizonsAfter(s, move); after[0].Horizon == nil || !after[0].Horizon.Equal(to) || after[1].Horizon != nil {
		t.Errorf("%+v", after)
	}
	if _, err := horizonFor(of(now.Add(-90*day), now.Add(-30*day)), "billing", to); ExitCode(err) != ExitRefused {
		t.Errorf("a consumer that had stopped before: %v", err)
	}
}
