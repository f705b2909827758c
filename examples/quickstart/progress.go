package main

import (
	"fmt"
	"time"
)

// progress tracks what workers report and what the group has committed.
type progress struct {
	total      int
	start      time.Time
	reported   [partitions]int64 // per partition, the end of the reported spans
	done       [partitions]int64 // per partition, the larger of reported and committed
	counted    int64             // deliveries from a queue that workers have reported
	ends       []int64           // per partition, the committed offset
	redelivery int64
	oldest     int32 // first generation of the group
	newest     int32
	end        time.Time // when everything was committed; zero: not yet
	pending    int       // events, after end
	moved      time.Time
	stall      time.Duration // the longest time between two changes
}

func newProgress(total int, start time.Time) progress {
	return progress{total: total, start: start, moved: start}
}

// report adds a worker's report. A span that starts before the end of an earlier report was delivered again. That is a
// lower bound, because a killed worker may have finished more than it reported.
func (p *progress) report(r report, now time.Time) {
	for _, s := range r.Spans {
		if again := min(s.To, p.reported[s.Partition]) - s.From; again > 0 {
			p.redelivery += again
		}
		p.reported[s.Partition] = max(p.reported[s.Partition], s.To)
		p.move(s.Partition, s.To, now)
	}
	if p.redelivery += r.Again; r.Finished > 0 {
		p.counted += r.Finished
		p.moves(now)
	}
	if r.Generation > 0 {
		if p.oldest == 0 {
			p.oldest = r.Generation
		}
		p.newest = max(p.newest, r.Generation)
	}
}

func (p *progress) committed(ends []int64, now time.Time) {
	p.ends = ends
	for i, end := range ends {
		p.move(int32(i), end, now)
	}
}

// relayed records how many events are pending after everything was committed, and reports whether there are none.
func (p *progress) relayed(pending int, now time.Time) bool {
	if p.end.IsZero() {
		p.end, p.pending, p.moved = now, pending, now
	}
	if pending != p.pending {
		p.pending, p.moved = pending, now
	}
	return pending == 0
}

func (p *progress) move(partition int32, end int64, now time.Time) {
	if end > p.done[partition] {
		p.done[partition] = end
		p.moves(now)
	}
}

func (p *progress) moves(now time.Time) {
	p.stall = max(p.stall, now.Sub(p.moved))
	p.moved = now
}

// idle is the time since the last change.
func (p *progress) idle(now time.Time) time.Duration { return now.Sub(p.moved) }

// rebalances is how often the group was rebalanced.
func (p *progress) rebalances() int { return int(p.newest - p.oldest) }

func (p *progress) finished() (sum int64) {
	for _, end := range p.done {
		sum += end
	}
	return min(max(sum, p.counted), int64(p.total)) // counted includes repeats
}

func (p *progress) share() float64 { return float64(p.finished()) / float64(p.total) }

// at describes the progress for an output line.
func (p *progress) at() string { return fmt.Sprintf("at %.0f %% of the deliveries", 100*p.share()) }

// line is the live line for the terminal.
func (p *progress) line(kills int) string {
	seconds := time.Since(p.start).Seconds()
	return fmt.Sprintf("%s of %s deliveries (%.0f %%), %s/s, kills %d, rebalances %d", thousands(p.finished()),
		thousands(int64(p.total)), 100*p.share(), thousands(int64(float64(p.finished())/seconds)), kills,
		p.rebalances())
}
