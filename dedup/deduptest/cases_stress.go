package deduptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// The stress must find, within seconds, a store that reads the horizon in the claim's statement or from the claim's
// snapshot, or that records the horizon in another transaction than the one that deletes keys. It finds them because
// many claims run during the few milliseconds of a purge, and because the purge is the first one for these keys.
const (
	stressDatabases = 3 // each has a first purge
	stressRounds    = 2 // on each
	stressKeys      = 300
	stressClaimers  = 6
	stressAge       = dedup.MinWindow + time.Minute // the keys expire, and the horizon must be read
)

// stressWindows are the windows that every node alternates between while keys are deleted.
var stressWindows = []time.Duration{dedup.MinWindow, 2 * time.Hour, 26 * time.Hour, dedup.DefaultWindow}

func horizonStress[TTx any](t *testing.T, e *env[TTx]) {
	var tally stressTally
	for n := range stressDatabases {
		t.Run(fmt.Sprint("database ", n), func(t *testing.T) { // at the end its nodes are closed
			e := e
			if n > 0 {
				e = e.fresh(t)
			}
			e.stress(t, &tally)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("claims while the sweep ran: %d duplicate, %d unprovable, %d to be retried",
		tally.duplicates.Load(), tally.unprovables.Load(), tally.retried.Load())
	if tally.duplicates.Load() == 0 || tally.unprovables.Load() == 0 {
		t.Error("no claim met a sweep: this case tried nothing")
	}
}

// stress runs all rounds on one database.
func (e *env[TTx]) stress(t *testing.T, tally *stressTally) {
	t.Helper()
	nodes := make([]dedup.Store[TTx], stressClaimers)
	for i := range nodes {
		nodes[i] = e.node(t)
		e.must(t, nodes[i], recordAt(fmt.Sprint("warm ", i), time.Now(), dedup.MinWindow), dedup.First)
	}
	for round := range stressRounds {
		e.stressRound(t, nodes, round, tally)
		if doubles := tally.doubles.Load(); doubles > 0 {
			t.Fatalf("round %d: %d keys that were claimed before, and then forgotten, were new again", round, doubles)
		}
	}
}

type stressTally struct{ duplicates, unprovables, doubles, retried atomic.Int64 }

// stressRound claims keys, lets them expire, and then claims them again while they are deleted.
func (e *env[TTx]) stressRound(t *testing.T, nodes []dedup.Store[TTx], round int, tally *stressTally) {
	t.Helper()
	ctx := bounded(t)
	recs := make([]dedup.Record, stressKeys)
	for i := range recs {
		recs[i] = recordAt(fmt.Sprintf("%d/%d", round, i), time.Now(), dedup.MinWindow)
	}
	for i, v := range verdicts(t, nodes[0], recs) {
		if v != dedup.First {
			t.Fatalf("%v: %v, want first", recs[i].Key, v)
		}
	}
	e.Age(t, stressAge)
	for i := range recs {
		recs[i].Time = recs[i].Time.Add(-stressAge)
	}

	var wg sync.WaitGroup
	sweeping, start := make(chan struct{}), make(chan struct{})
	for i, s := range nodes {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			<-start
			for over := false; !over; { // once more after the sweep is over
				select {
				case <-sweeping:
					over = true
				default:
				}
				batch := make([]dedup.Record, []int{1, 1, 1, 10, 100}[random.IntN(5)])
				from := random.IntN(len(recs))
				for j := range batch {
					batch[j] = recs[(from+j)%len(recs)]
					batch[j].Window = stressWindows[random.IntN(len(stressWindows))]
				}
				if err := e.stressClaim(ctx, s, batch, random.IntN(3) == 0, tally); err != nil {
					t.Errorf("claim: %v", err)
					return
				}
			}
		})
	}
	close(start)
	_ = await.Sleep(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
	swept := sweepAll(t, e.node(t), stressKeys)
	close(sweeping)
	wg.Wait()
	if swept.Keys == 0 {
		t.Error("the sweep forgot nothing")
	}
	sweepAll(t, nodes[0], stressKeys) // the keys that a claim had locked
	for i, v := range verdicts(t, nodes[0], recs) {
		if v != dedup.Unprovable && tally.doubles.Load() == 0 {
			t.Errorf("%v after the sweep: %v, want unprovable", recs[i].Key, v)
		}
	}
}

// stressClaim counts the verdicts of one transaction that committed.
func (e *env[TTx]) stressClaim(ctx context.Context, s dedup.Store[TTx], recs []dedup.Record, own bool,
	tally *stressTally,
) error {
	var claims []dedup.Claim
	keep := func(_ TTx, c []dedup.Claim) error {
		claims = append(claims[:0], c...)
		return nil
	}
	var err error
	if !own {
		err = s.InTx(ctx, recs, keep)
	} else {
		err = e.Tx(ctx, e.options(), func(tx TTx) error {
			c, err := s.Claim(ctx, tx, recs)
			_ = keep(tx, c)
			return err
		})
	}
	switch {
	case err == nil:
	case passing(s, err):
		tally.retried.Add(1)
		return nil
	default:
		return err
	}
	for _, c := range claims {
		switch c.Verdict {
		case dedup.First:
			tally.doubles.Add(1)
		case dedup.Duplicate:
			tally.duplicates.Add(1)
		case dedup.Unprovable:
			tally.unprovables.Add(1)
		default:
			return fmt.Errorf("verdict %v", c.Verdict)
		}
	}
	return nil
}
