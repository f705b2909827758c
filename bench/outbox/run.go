package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// results are the measured values of all rounds, by question and system.
type results map[[2]string][]float64

func (r results) note(question, system string, v float64) {
	key := [2]string{question, system}
	r[key] = append(r[key], v)
	fmt.Fprintf(os.Stderr, "%-45s %-28s %s\n", question, system, number(v))
}

// run measures everything requested and adds it to r.
func run(ctx context.Context, r *report, rounds int, only, ask string, heldOpen time.Duration) error {
	var chosen []kind
	for _, k := range kinds {
		if strings.Contains(k.name, only) {
			chosen = append(chosen, k)
		}
	}
	all := results{}
	for range rounds { // round by round, so that a disturbance does not affect only one system
		if strings.Contains(ask, "drain") {
			if err := all.drains(ctx, chosen); err != nil {
				return err
			}
		}
		if strings.Contains(ask, "latency") {
			if err := all.latencies(ctx, append([]kind{otherProcess}, chosen...)); err != nil {
				return err
			}
		}
	}
	if strings.Contains(ask, "cost") {
		if err := all.costs(ctx, append([]kind{{name: noMessage, setup: newBare}}, chosen...), 7*rounds); err != nil {
			return err
		}
	}
	if strings.Contains(ask, "held") {
		if err := all.heldOpen(ctx, chosen, heldOpen); err != nil {
			return err
		}
	}
	for _, q := range questions {
		for _, name := range names(chosen) {
			if values := all[[2]string{q.question, name}]; len(values) > 0 {
				r.add(q.question, name, q.unit, values)
			}
		}
	}
	return nil
}

func names(chosen []kind) []string {
	all := []string{noMessage}
	for _, k := range chosen {
		all = append(all, k.name)
	}
	return append(all, otherProcess.name)
}

func (r results) drains(ctx context.Context, chosen []kind) error {
	for _, k := range chosen {
		if k.drain == 0 {
			continue
		}
		v, err := drain(ctx, k, k.drain, 0)
		if err != nil {
			return err
		}
		r.note(drained, k.name, v)
		if v, err = drain(ctx, k, k.slow, slowAck); err != nil {
			return err
		}
		r.note(drainedSlow, k.name, v)
	}
	return nil
}

func (r results) latencies(ctx context.Context, chosen []kind) error {
	for _, k := range chosen {
		p50, p99, err := latency(ctx, k, 500, true)
		if err != nil {
			return err
		}
		r.note(fast, k.name, p50.Seconds()*1000)
		r.note(fastWorst, k.name, p99.Seconds()*1000)
		if p50, _, err = latency(ctx, k, 200, false); err != nil {
			return err
		}
		r.note(plain, k.name, p50.Seconds()*1000)
	}
	return nil
}

func (r results) costs(ctx context.Context, chosen []kind, turns int) error {
	for _, c := range []struct {
		question string
		conns    int
	}{{cost1, 1}, {cost8, connections}} {
		ratios, err := transactions(ctx, chosen, c.conns, turns)
		if err != nil {
			return err
		}
		for i, k := range chosen {
			r[[2]string{c.question, k.name}] = ratios[i]
		}
	}
	return nil
}

func (r results) heldOpen(ctx context.Context, chosen []kind, long time.Duration) error {
	for _, k := range chosen {
		if !strings.HasPrefix(k.name, "txonce") { // the forwarder waits for every transaction id, so it publishes nothing meanwhile
			continue
		}
		free, holding, err := held(ctx, k, long)
		if err != nil {
			return err
		}
		r.note(burstFree, k.name, free)
		r.note(burstHeld, k.name, holding/free)
	}
	return nil
}
