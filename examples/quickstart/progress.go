package main

import (
	"fmt"
	"time"
)

// progress follows the partitions through what workers report and what the group has committed.
type progress struct {
	total      int
	start      time.Time
	reported   [partitions]int64 // the end of what workers have reported
	done       [partitions]int64 // that, or what is committed, whichever is further
	counted    int64             // what workers have reported of a queue
	ends       []int64           // what is committed
	redelivery int64
	oldest     int32 // generation of the group
	newest     int32
	end        time.Time // when everything was committed; zero: it is not
	pending    int       // events, from then on
	moved      time.Time
	stall      time.Duration // the longest between two moves
}

func newProgress(total int, start time.Time) progress {
	return progress{total: total, start: start, moved: start}
}

// report takes in what a worker has finished. What lies before the end of an earlier report was delivered again: at
// least that much, because a killed worker may have finished more than it reported.
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

// relayed takes in how many events are pending, once everything is committed, and reports whether none is.
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

// idle is how long nothing has moved.
func (p *progress) idle(now time.Time) time.Duration { return now.Sub(p.moved) }

// rebalances is how often the group has shared out its partitions anew.
func (p *progress) rebalances() int { return int(p.newest - p.oldest) }

func (p *progress) finished() (sum int64) {
	for _, end := range p.done {
		sum += end
	}
	return min(max(sum, p.counted), int64(p.total)) // repeats are counted too
}

func (p *progress) share() float64 { return float64(p.finished()) / float64(p.total) }

// at says how far it is.
func (p *progress) at() string { return fmt.Sprintf("at %.0f %% of the deliveries", 100*p.share()) }

// line is for the terminal.
func (p *progress) line(kills int) string {
	seconds := time.Since(p.start).Seconds()
	return fmt.Sprintf("%s of %s deliveries (%.0f %%), %s/s, kills %d, rebalances %d", thousands(p.finished()),
		thousands(int64(p.total)), 100*p.share(), thousands(int64(float64(p.finished())/seconds)), kills, p.rebalances())
}
