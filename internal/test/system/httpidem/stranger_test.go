package httpidem_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/test/testdb"
)

// E2: while 50 twins of one slow request wait, in its process and in another one, requests of strangers go on as if
// they were not there, with pools of 10 connections.
func TestStrangersDoNotWaitForTwins(t *testing.T) {
	testdb.Postgres(t) // skips the test with -short
	e := allEngines[0]
	dsn := e.Create(t)
	here := e.node(t, dsn, settings{conns: 10, wait: 5 * time.Minute})
	there := e.node(t, dsn, settings{conns: 10, wait: 5 * time.Minute})
	key := 0
	strangers := func(n *node) time.Duration {
		const requests = 300
		took := make([]time.Duration, requests)
		h := n.handle(e.order)
		for i := range took {
			key++
			began := time.Now()
			wantStatus(t, h, request{key: fmt.Sprint("stranger-", key)}, http.StatusCreated, false)
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return took[requests*99/100]
	}

	var running atomic.Int64
	release := make(chan struct{})
	slow := func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
		running.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		return e.order(ctx, exec, w, r)
	}
	var before, during [2]time.Duration
	for try := range 3 { // another process may take the processors away
		var wg sync.WaitGroup
		release = make(chan struct{})
		running.Store(0)
		before = [2]time.Duration{strangers(here), strangers(there)}
		for range 50 {
			for _, n := range []*node{here, there} {
				wg.Go(func() { untilAnswered(t, n.handle(slow), request{key: fmt.Sprint("slow-", try)}) })
			}
		}
		for running.Load() == 0 {
			<-time.After(time.Millisecond)
		}
		during = [2]time.Duration{strangers(here), strangers(there)}
		close(release)
		wg.Wait()
		t.Logf("p99 of strangers in the two processes: %v; with 50 twins in each: %v", before, during)
		// On a busy machine they are slow without twins too. Strangers that wait for twins wait until release.
		if max(during[0], during[1]) < max(50*time.Millisecond, 2*max(before[0], before[1])) {
			return
		}
	}
	t.Errorf("p99 of strangers with 50 twins: %v, want less than 50 ms, or less than twice those without twins: %v", during, before)
}

// E2: handlers that take a second connection of the pool cannot take all of them from each other.
func TestSecondConnections(t *testing.T) {
	testdb.Postgres(t) // skips the test with -short
	e := allEngines[0]
	n := e.node(t, e.Create(t), settings{conns: 4})
	h := n.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
		if err := e.order(ctx, exec, w, r); err != nil {
			return err
		}
		return n.exec(ctx, `SELECT pg_sleep(.005)`)
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { wantStatus(t, h, request{key: fmt.Sprint(i)}, http.StatusCreated, false) })
	}
	wg.Wait()
	n.wantEffects(t, 50)
}
