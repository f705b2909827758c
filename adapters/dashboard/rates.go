package dashboard

import (
	"context"
	"fmt"
	"slices"
	"time"
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

func (d *Dashboard) rates(context.Context, time.Time) (map[string]rates, error) { return nil, nil }

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
