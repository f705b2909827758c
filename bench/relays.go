package main

import (
	"context"
	"fmt"
	"time"
)

// drains measures how fast a backlog is published to Kafka.
func (b *bench) drains(ctx context.Context) error {
	t := b.report.table("drains", "messages/s")
	for _, column := range []struct {
		name  string
		delay time.Duration
		size  func(outboxKind) int
	}{
		{"Kafka", 0, func(k outboxKind) int { return k.drain }},
		{"Kafka answers 2 ms later", 2 * time.Millisecond, func(k outboxKind) int { return k.slow }},
	} {
		b.progress("drains, %s", column.name)
		var ways []way
		for _, k := range outboxKinds {
			n := column.size(k) / max(1, b.size.backlog/2)
			if n == 0 {
				continue
			}
			ways = append(ways, way{k.name, "", func(ctx context.Context) (perSecond float64, err error) {
				p := &place{delay: column.delay, tuned: true, seen: newConfirmed(n)}
				err = b.in(ctx, k, p, func(ctx context.Context, s system) error {
					if err := s.Fill(ctx, 0, n); err != nil {
						return fmt.Errorf("fill: %w", err)
					}
					perSecond, err = drain(ctx, p.seen.tally, s.Relay)
					return err
				})
				return perSecond, err
			}})
		}
		figures, err := rounds(ctx, b.size.backlogRounds, false, ways)
		if err != nil {
			return err
		}
		t.add(column.name, ways, figures)
	}
	return nil
}

// latencies measures how long after COMMIT the broker has confirmed a message, at a hundred transactions per second.
func (b *bench) latencies(ctx context.Context) error {
	t := b.report.table("latencies", "ms")
	for _, column := range []struct {
		name  string
		tuned bool
	}{{"polling every 10 ms", true}, {"default settings", false}} {
		if b.size.short && !column.tuned {
			continue // it has no targets
		}
		b.progress("latencies, %s", column.name)
		var ways []way
		worst := series{}
		for _, k := range append([]outboxKind{elsewhere}, outboxKinds...) {
			ways = append(ways, way{k.name, "", func(ctx context.Context) (float64, error) {
				took, err := b.latency(ctx, k, 500/b.size.backlog, column.tuned)
				if err != nil {
					return 0, err
				}
				worst[k.name] = append(worst[k.name], percentile(took, 99))
				return percentile(took, 50), nil
			}})
		}
		figures, err := rounds(ctx, b.size.backlogRounds, false, ways)
		if err != nil {
			return err
		}
		t.add("p50, "+column.name, ways, figures)
		t.add("p99, "+column.name, ways, worst)
	}
	return nil
}

// latency returns the time from COMMIT to the broker's confirmation of n messages.
func (b *bench) latency(ctx context.Context, k outboxKind, n int, tuned bool) (took []time.Duration, err error) {
	const warmUp = 30
	p := &place{tuned: tuned, seen: newConfirmed(warmUp + n)}
	committed := make(map[string]time.Time, n)
	err = b.in(ctx, k, p, func(ctx context.Context, s system) error {
		return while(ctx, s.Relay, func(ctx context.Context) error {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range warmUp + n {
				<-tick.C
				id := fmt.Sprint(i)
				if err := s.Tx(ctx, id); err != nil {
					return err
				}
				if i >= warmUp {
					committed[id] = time.Now()
				}
			}
			return p.seen.wait(ctx)
		})
	})
	for id, at := range committed {
		took = append(took, p.seen.at[id].Sub(at))
	}
	return took, err
}
