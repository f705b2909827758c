package dashboard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// rates are what the workers of one consumer have reported.
type rates struct {
	PerMinute []int64 // messages processed in each of the last minutes, oldest first, without the one that goes on
	Latest    int64
	Duplicate float64 // percent of all outcomes
	Retried   float64
	Paused    string        // the cause; empty: no worker is paused
	Silent    time.Duration // since the last report, if that is long ago; 0: it is not
}

// rates sums up what the workers have reported lately. now is the database's clock; those of the workers may differ a
// little.
func (d *Dashboard) rates(ctx context.Context, now time.Time) (map[string]rates, error) {
	if d.cfg.Activity == nil {
		return nil, nil
	}
	minute := now.Truncate(time.Minute)
	rows, err := d.cfg.Activity.Activity(ctx, minute.Add(-activityShown))
	if err != nil {
		return nil, err
	}
	type sum struct {
		rates
		total, duplicates, retried int64
		latest                     map[string]ops.Activity // by node
	}
	sums := map[string]*sum{}
	for _, row := range rows {
		s := sums[row.Consumer]
		if s == nil {
			s = &sum{
				rates:  rates{PerMinute: make([]int64, int(activityShown/time.Minute))},
				latest: map[string]ops.Activity{},
			}
			sums[row.Consumer] = s
		}
		if i := len(s.PerMinute) - int(minute.Sub(row.Minute)/time.Minute); i >= 0 && i < len(s.PerMinute) {
			s.PerMinute[i] += row.Messages[observe.Processed]
		}
		for _, n := range row.Messages {
			s.total += n
		}
		s.duplicates += row.Messages[observe.Duplicate]
		s.retried += row.Messages[observe.Retried]
		s.latest[row.Node] = row // rows are sorted by minute
	}
	paused := ops.Paused(rows, now)
	found := map[string]rates{}
	for name, s := range sums {
		s.Latest = s.PerMinute[len(s.PerMinute)-1]
		if s.total > 0 {
			s.Duplicate, s.Retried = 100*float64(s.duplicates)/float64(s.total), 100*float64(s.retried)/float64(s.total)
		}
		s.Paused = string(paused[name])
		silent := activityShown
		for _, row := range s.latest {
			silent = min(silent, max(0, minute.Sub(row.Minute)))
		}
		if silent >= ops.ActivityFresh {
			s.Silent = silent
		}
		found[name] = s.rates
	}
	return found, nil
}

// spark is a row of bars, one per minute.
type spark struct {
	Width int
	Label string
	Bars  []bar
}

type bar struct{ X, Y, H int }

const sparkHeight = 24

// Spark draws PerMinute. The label says the same in words.
func (r *rates) Spark() *spark {
	if len(r.PerMinute) == 0 {
		return nil
	}
	highest := slices.Max(r.PerMinute)
	s := &spark{Width: 5 * len(r.PerMinute), Label: fmt.Sprintf("processed in each of the last %d minutes: highest %s, latest %s", len(r.PerMinute), number(highest), number(r.Latest))}
	for i, n := range r.PerMinute {
		h := 1
		if n > 0 {
			h = max(2, int(n*sparkHeight/highest))
		}
		s.Bars = append(s.Bars, bar{X: 5 * i, Y: sparkHeight - h, H: h})
	}
	return s
}
