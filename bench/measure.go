package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A way is one of several ways to do the same work. measure does some of it and returns a figure in the table's unit.
type way struct {
	name    string
	base    string // the way that this one is compared with
	measure func(ctx context.Context) (float64, error)
}

// series is the figures of each way, one per round.
type series map[string][]float64

// rounds measures each way once in each round, in random order: a machine's speed changes from minute to minute, so
// only figures of one round can be compared. The figures of a first round are dropped if warmUp is true.
func rounds(ctx context.Context, n int, warmUp bool, ways []way) (series, error) {
	s := series{}
	for round := range n + 1 {
		if round == 0 && !warmUp {
			continue
		}
		for _, i := range rand.Perm(len(ways)) {
			v, err := ways[i].measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if round > 0 {
				s[ways[i].name] = append(s[ways[i].name], v)
			}
		}
	}
	return s, nil
}

// rate calls do on n goroutines for the time of a slot, and returns how many messages per second they handled.
func rate(ctx context.Context, n int, slot time.Duration,
	do func(ctx context.Context) (messages int, err error),
) (perSecond float64, err error) {
	var (
		group sync.WaitGroup
		total atomic.Int64
		errs  = make([]error, n)
		began = time.Now()
	)
	for i := range n {
		group.Go(func() {
			for time.Since(began) < slot && errs[i] == nil && ctx.Err() == nil {
				var messages int
				messages, errs[i] = do(ctx)
				total.Add(int64(messages))
			}
		})
	}
	group.Wait()
	return float64(total.Load()) / time.Since(began).Seconds(), errors.Join(append(errs, context.Cause(ctx))...)
}

// ratios divides the figures of a way by those that base had in the same round.
func (s series) ratios(way, base string) []float64 {
	if len(s[way]) == 0 || len(s[way]) != len(s[base]) {
		return nil
	}
	ratios := make([]float64, len(s[way]))
	for i := range ratios {
		ratios[i] = s[way][i] / s[base][i]
	}
	return ratios
}

// summary is the median over rounds, and the quartiles.
type summary struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func summarize(values []float64) summary {
	sorted := slices.Sorted(slices.Values(values))
	last := len(sorted) - 1
	return summary{Median: (sorted[last/2] + sorted[len(sorted)/2]) / 2, Low: sorted[last/4], High: sorted[last-last/4]}
}

// percentile of durations, in milliseconds.
func percentile(took []time.Duration, percent int) float64 {
	slices.Sort(took)
	return took[(len(took)-1)*percent/100].Seconds() * 1000
}
