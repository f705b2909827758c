package wire

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/proof"
)

var (
	seconds = flag.Float64("wire.seconds", short, "how long to begin cases on each server")
	seed    = flag.Uint64("wire.seed", 0, "what the cases are drawn from; 0: the clock")
	from    = flag.Int("wire.from", 0, "the number of the first case")
	cases   = flag.Int("wire.cases", 0, "how many cases; 0: as many as -wire.seconds allows")
	full    = flag.Bool("wire.full", false, "go on, at most four times as long, until each cell of a consumer's COMMIT has 20 faults")
	out     = flag.String("wire.proof", "", "write the counts to files in this `folder`, and go on as with -wire.full, until each cell has a fault")
	logged  = flag.Bool("wire.log", false, "show what consumers and relays log")
)

// short is how long a run of make test takes.
const short = 2

// engines are the databases.
var engines = []struct {
	name, title string
	open        func(*testing.T, uint64) *world
}{
	{"postgres", "PostgreSQL 15: pgxstore, sqlstore", openPostgres},
	{"mariadb", "MariaDB: sqlstore", openMySQL},
	{"mysql", "MySQL: sqlstore", openMySQL},
	{"kafka", "Kafka: the relay's publisher", openKafka},
	{"rabbitmq", "RabbitMQ: the relay's publisher", openRabbitMQ},
}

func TestWire(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			drawn := *seed
			if drawn == 0 {
				drawn = uint64(time.Now().UnixNano()) % 1e6
			}
			w := e.open(t, drawn)
			r := &run{world: w, t: t, again: func(n int) string {
				return fmt.Sprintf("SEED=%d FROM=%d CASES=1 make wire ENGINE=%s", drawn, n, e.name)
			}}
			r.count = proof.Run{
				Tier: proof.Wire, Name: e.title, Seed: drawn, Date: time.Now().Format(time.DateOnly), Commit: proof.Commit(),
				Command: fmt.Sprintf("SEED=%d make wire ENGINE=%s SECONDS=%.0f", drawn, e.name, *seconds),
			}
			r.all()
			r.report(e.name)
		})
	}
}

// run runs the cases of one database.
type run struct {
	*world
	t     *testing.T
	again func(n int) string // the command that runs a case again
	count proof.Run
	cases int // that have ended
	began time.Time

	mu      sync.Mutex
	results []*result // of the round
	ended   []*result // of the rounds before, without their traces
}

// roundLength is how long the traces of a round's cases are kept.
const roundLength = 30 * time.Second

func (r *run) all() {
	r.began = time.Now()
	long := time.Duration(*seconds * float64(time.Second))
	end, next := r.began.Add(long), *from
	r.expect()
	for {
		stop := time.Now().Add(roundLength)
		if stop.After(end) && time.Now().Before(end) {
			stop = end
		}
		next = r.round(next, stop)
		ended := time.Now().After(end) && r.enough() == nil || time.Since(r.began) > max(4*long, time.Minute)
		if r.t.Failed() || *cases > 0 || ended {
			break
		}
	}
	r.count.Seconds = time.Since(r.began).Seconds()
	r.last(r.t.Context())
}

func (r *run) enough() error { return check(r.count, *full || *out != "", *out != "") }

// last judges all cases once more: a message may have been published, or an effect doubled, after the audit of its round.
func (r *run) last(ctx context.Context) {
	f, wrong, err := r.audit(ctx, r.ended)
	if err != nil {
		r.t.Error(err)
	}
	for _, res := range wrong {
		if !res.counted {
			r.countBad(res)
		}
		r.t.Errorf("case %d, %s, at the end of the run: %v\n\t%s\nagain: %s", res.n, res.lane, res.shot,
			strings.Join(res.bad, "\n\t"), r.again(res.n))
	}
	for _, stray := range strays(r.ended, f) {
		r.t.Error(stray)
	}
}

// round runs cases until the time, and audits them. It returns the number of the next case.
func (r *run) round(from int, stop time.Time) (next int) {
	lanes := len(r.lanes) + len(r.relays)
	var working sync.WaitGroup
	ctx := r.t.Context()
	var mu sync.Mutex
	next = from
	for i := range lanes {
		working.Go(func() {
			n := from + (i-from%lanes+lanes)%lanes // the first case of this lane
			for ; *cases > 0 && n < from+*cases || *cases == 0 && time.Now().Before(stop); n += lanes {
				r.one(ctx, i, n)
			}
			mu.Lock()
			defer mu.Unlock()
			next = max(next, n)
		})
	}
	working.Wait()
	if _, _, err := r.audit(ctx, r.results); err != nil {
		r.t.Error(err)
	}
	for _, res := range r.results {
		r.add(res)
		res.trace = nil
	}
	r.ended, r.results = append(r.ended, r.results...), nil
	r.t.Logf("%.0f s: %d cases, %d faults, %d bad", time.Since(r.began).Seconds(), r.cases, r.count.Faults(), r.count.Bad)
	return next
}

// one runs a case on a lane.
func (r *run) one(ctx context.Context, i, n int) {
	var res *result
	lanes := len(r.lanes) + len(r.relays)
	if i < len(r.lanes) {
		l := r.lanes[i]
		tried, _ := l.role.cells()
		c := deck{r.seed, tried}.draw(n/lanes*len(r.lanes) + i)
		res = r.consume(ctx, l, r.lanes[(i+1)%len(r.lanes)], n, c)
	} else {
		at := i - len(r.lanes)
		l := r.relays[at]
		tried, _ := l.role.cells()
		c := deck{r.seed, tried}.draw(n/lanes*len(r.relays) + at)
		res = r.publishes(ctx, l, n, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
}

// add counts a case, and reports what was wrong with it.
func (r *run) add(res *result) {
	r.cases++
	res.counts = res.faults()
	for _, s := range res.counts {
		c := r.count.Cell(r.place(res, s), s.cell.kind.String())
		c.Faults++
		c.Cases++
	}
	if len(res.counts) > 0 {
		r.count.Cases++
	}
	if len(res.bad) > 0 {
		r.countBad(res)
		r.t.Errorf("case %d, %s: %v\n\t%s\nagain: %s\n%s", res.n, res.lane, res.shot,
			strings.Join(res.bad, "\n\t"), r.again(res.n), r.traceOf(res))
	} else if *cases == 1 {
		r.t.Logf("case %d, %s: %v\n%s", res.n, res.lane, res.shot, r.traceOf(res))
	}
}

func (r *run) countBad(res *result) {
	res.counted = true
	r.count.Bad++
	for _, s := range res.counts {
		r.count.Cell(r.place(res, s), s.cell.kind.String()).Bad++
	}
}

// traceOf returns the frames of a case. Only the first bad cases have theirs.
func (r *run) traceOf(res *result) string {
	if r.count.Bad > 5 {
		return "(the first five bad cases have their traces)"
	}
	var lines strings.Builder
	for _, s := range res.trace {
		fmt.Fprintln(&lines, s)
	}
	return lines.String()
}

// place names a cell's boundary on the page.
func (r *run) place(res *result, s *shot) string {
	role := "consumer"
	if res.relay {
		role = "relay"
	}
	return role + ": " + s.cell.place()
}

// expect adds the cells without counts.
func (r *run) expect() {
	for _, lanes := range [][]*lane{r.lanes, r.relays} {
		if len(lanes) == 0 {
			continue
		}
		role := lanes[0].role
		tried, left := role.cells()
		for _, c := range tried {
			counted := r.count.Cell(role.name+": "+c.place(), c.kind.String())
			if c.boundary == commitBoundary && lanes[0].node != nil {
				counted.Least = 20
			}
		}
		for c, reason := range left {
			r.count.Cell(role.name+": "+c.place(), c.kind.String()).Reason = reason
		}
	}
}

// check returns what keeps the run from being enough. A run that is published has a fault in each cell; a full one has
// enough in the cells of a consumer's COMMIT, and any other one has a fault.
func check(count proof.Run, full, published bool) error {
	if !published {
		count.Cells = slices.DeleteFunc(slices.Clone(count.Cells), func(c proof.Cell) bool {
			return c.Faults == 0 && (!full || c.Least == 0)
		})
	}
	if !full {
		count.Cells = slices.Clone(count.Cells)
		for i := range count.Cells {
			count.Cells[i].Least = 0
		}
	}
	return count.Check()
}

// report checks the counts and writes them.
func (r *run) report(name string) {
	r.t.Logf("%s: %d faults in %d cases, %.0f faults a second, %d bad, seed %d", r.count.Name, r.count.Faults(), r.cases,
		float64(r.count.Faults())/r.count.Seconds, r.count.Bad, r.seed)
	if n := r.failures.Load(); n > 0 {
		r.t.Logf("%s: the publisher in memory has failed %d times", r.count.Name, n)
	}
	if err := r.enough(); err != nil {
		r.t.Error(err)
	}
	if untried := r.count.Untried(); len(untried) > 0 {
		r.t.Logf("%s: no fault in\n\t%s", r.count.Name, strings.Join(untried, "\n\t"))
	}
	if *out != "" {
		if err := r.count.Write(filepath.Join(*out, "wire-"+name+".json")); err != nil {
			r.t.Error(err)
		}
	}
}
