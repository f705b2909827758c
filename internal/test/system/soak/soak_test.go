package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

var (
	messages = flag.Int("soak.messages", 600, "how many messages each database handles")
	seed     = flag.Uint64("soak.seed", 0, "what the plan is drawn from; 0: the clock")
	logged   = flag.Bool("soak.log", false, "show what consumers and stores log")
)

const (
	nodes, workers = 2, 4 // workers per node
	limit          = 20 * time.Minute
)

func TestSoak(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			from := *seed
			if from == 0 {
				from = uint64(time.Now().UnixNano())
			}
			t.Logf("seed %d: go test ./internal/test/system/soak -run 'TestSoak/%s$' -soak.messages %d -soak.seed %d",
				from, v.name, *messages, from)
			rng := rand.New(rand.NewPCG(from, 0))
			kinds := plan(rng, *messages/v.share, v.every)
			soak(t, rng, kinds, v.open(t, kinds), v.batch)
		})
	}
}

func soak(t *testing.T, rng *rand.Rand, kinds map[string]kind, d database, batch int) {
	msgs := make([]consumer.Message, 0, len(kinds))
	for i := range len(kinds) {
		id := fmt.Sprintf("m-%d", i)
		m := consumer.Message{ID: id, Topic: "soak", Position: id, Payload: []byte(id), Time: time.Now()}
		if i%2 == 0 {
			m.OrderingKey = fmt.Sprintf("k-%d", rng.IntN(len(kinds)/10+1))
		}
		msgs = append(msgs, m)
	}
	q := newQueue(rng, msgs)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	var work sync.WaitGroup
	all := make([]node, nodes)
	for i := range all {
		all[i] = d.node()
		for range workers {
			work.Go(func() { q.work(ctx, t, all[i], batch) })
		}
	}
	beating, still := context.WithCancel(ctx)
	var beats sync.WaitGroup
	for i, n := range all {
		beats.Go(func() { beat(beating, n, i) })
	}
	killed := killing(ctx, t, d, &work)
	still()
	beats.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d deliveries were not acknowledged within %v", q.open, limit)
	}
	t.Logf("%d messages, %d deliveries, %d of them again; %d connections killed; %.1f s",
		len(kinds), q.counts.delivered, q.counts.redelivered, killed, time.Since(began).Seconds())
	if d.used != nil {
		d.used(t)
	}
	audit(t, kinds, d, d.node()) // a new node, because the others may hold connections that were killed
}

// beat handles ordinary messages until the work is done, like a queue that always has new ones. A Consumer counts a
// failure that may be the database's against a message only while other messages are committed.
func beat(ctx context.Context, n node, at int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		id := fmt.Sprintf("beat-%d-%d", at, i)
		n.ProcessBatch(ctx, []*consumer.Message{{ID: id, Topic: "beats", Position: id, Payload: []byte(id), Time: time.Now(), Attempt: 1}})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// killing ends connections until the work is done, and returns how many.
func killing(ctx context.Context, t *testing.T, d database, work *sync.WaitGroup) int {
	over := make(chan struct{})
	var killed atomic.Int64
	var killer sync.WaitGroup
	if d.kill != nil {
		killer.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-over:
					return
				case <-ctx.Done():
					return
				}
				n, err := d.kill()
				if err != nil {
					t.Errorf("kill connections: %v", err)
					return
				}
				killed.Add(int64(n))
			}
		})
	}
	work.Wait()
	close(over)
	killer.Wait()
	return int(killed.Load())
}

// audit compares effects and dead letters with the plan.
func audit(t *testing.T, kinds map[string]kind, d database, n node) {
	effects := map[string]int{}
	for i, p := range d.places {
		p.count(t, effects)
		var claims int
		if err := p.db.QueryRow(`SELECT count(*) FROM processed_messages`).Scan(&claims); err != nil ||
			i > 0 && claims > 0 {
			t.Errorf("%d claims in place %d, %v; claims belong into the first one alone", claims, i, err)
		}
	}
	letters := map[string]consumer.DeadLetter{}
	for _, l := range allLetters(t, n) {
		letters[l.Message.ID] = l
	}

	tally := map[string]int{}
	for id, k := range kinds {
		letter, parked := letters[id]
		unknown := parked && letter.Cause == observe.CauseUnknown
		fault := ""
		switch {
		case effects[id] > 1 && k == rollsBack && unknown:
			// Each run writes its effect outside of any transaction, so each delivery that runs before the message is
			// parked leaves one. database/sql cannot prevent that; pgxstore refuses the ROLLBACK.
		case effects[id] == 1 && k == leavesRows && letter.Settled:
			// database/sql closes the rows when the handler's context ends. If it does so before the transaction is
			// verified, the message is committed, also when another delivery of it was parked before.
		case effects[id] > 1:
			fault = "doubled"
		case effects[id] == 0 && !parked:
			fault = "lost"
		case effects[id] == 1 && parked && !unknown:
			fault = "has its effect and a letter"
		case parked && letter.Error == "":
			fault = "has a letter without a cause"
		case parked && k.letter() != "" && !unknown && !strings.Contains(letter.Error, k.letter()):
			fault = "has a letter of another cause, want " + k.letter()
		case parked && !unknown && (k == well || k == transient || k == session || k == cuts):
			fault = "is parked for what another message did"
		case k.letter() != "" && !parked:
			fault = "has no letter"
		}
		tally[fmt.Sprintf("%s: effect %v, letter %v", k, effects[id] > 0, letter.Cause)]++
		if fault != "" {
			t.Errorf("%s (%s) %s: %d effects, letter %q, cause %q", id, k, fault, effects[id], letter.Cause,
				letter.Error)
		}
	}
	lines := make([]string, 0, len(tally))
	for what, count := range tally {
		lines = append(lines, fmt.Sprintf("%7d  %s", count, what))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[9:], b[9:]) })
	t.Logf("what became of them:\n%s", strings.Join(lines, "\n"))
}

// count adds the effects in p to effects.
func (p place) count(t *testing.T, effects map[string]int) {
	t.Helper()
	rows, err := p.db.Query(`SELECT name, count(*) FROM effects GROUP BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var count int
		if err := rows.Scan(&name, &count); err != nil {
			t.Fatal(err)
		}
		effects[name] += count
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func allLetters(t *testing.T, n node) (all []consumer.DeadLetter) {
	t.Helper()
	var filter consumer.DeadLetterFilter
	for {
		page, err := n.DeadLetters(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		filter.After = page[len(page)-1].Cursor()
	}
}
