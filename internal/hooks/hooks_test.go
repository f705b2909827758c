package hooks_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// A hook that panics has no effect but a log line, at most one a minute, and does not keep the other hook from being
// called.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &hooks.Panics{Logger: slog.New(slog.NewTextHandler(&log, nil)), Owner: "consumer"}
		called := 0
		both := hooks.Then(func(context.Context, int) { panic("a bug") }, func(context.Context, int) { called++ })
		for range 3 {
			hooks.Call(t.Context(), p, "Done", both, 1)
		}
		<-time.After(time.Minute)
		hooks.Call(t.Context(), p, "Done", both, 1)
		hooks.Call[int](t.Context(), p, "Done", nil, 1)
		if lines := strings.Count(log.String(), "a bug"); called != 4 ||
			strings.Count(log.String(), "function=Done") != 2 || lines < 2 {
			t.Errorf("%d calls of the other hook, log:\n%s", called, &log)
		}
	})
}

// Paused and Resumed alternate, whichever goroutines call them, and no hook is called under the lock.
func TestPauseAlternates(t *testing.T) {
	var mu sync.Mutex
	var told []string
	p := &hooks.Pause{
		Logger: slog.New(slog.DiscardHandler), Owner: "consumer",
		Panics: &hooks.Panics{Logger: slog.New(slog.DiscardHandler)}, Why: func(error) string { return "" },
	}
	tell := func(what string) func(context.Context, observe.Pause) {
		return func(ctx context.Context, _ observe.Pause) {
			mu.Lock()
			told = append(told, what)
			mu.Unlock()
			if what == "resumed" {
				p.Worked(ctx) // would block for ever under a lock
			}
		}
	}
	p.Paused, p.Resumed = tell("paused"), tell("resumed")
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 2000 {
				p.Failed(t.Context(), true, context.Canceled)
				p.Worked(t.Context())
			}
		})
	}
	workers.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i, what := range told {
		if what != []string{"paused", "resumed"}[i%2] {
			t.Fatalf("call %d was %s", i, what)
		}
	}
	if len(told) < 2 || len(told)%2 != 0 {
		t.Errorf("%d calls", len(told))
	}
}

// A hook that ends its goroutine, as testing.T.FailNow does, keeps no later hook from being called.
func TestHookThatEndsItsGoroutine(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	resumed := 0
	p := &hooks.Pause{
		Logger: quiet, Panics: &hooks.Panics{Logger: quiet}, Why: func(error) string { return "" },
		Paused:  func(context.Context, observe.Pause) { runtime.Goexit() },
		Resumed: func(context.Context, observe.Pause) { resumed++ },
	}
	var ends sync.WaitGroup
	ends.Go(func() { p.Failed(t.Context(), true, context.Canceled) })
	ends.Wait()
	p.Worked(t.Context())
	if resumed != 1 {
		t.Errorf("Resumed was called %d times", resumed)
	}
}

func TestPauseIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &hooks.Pause{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Owner: "consumer", Panics: &hooks.Panics{},
			Why: func(err error) string { return "because of " + err.Error() }, Recovered: "it works",
		}
		for range 10 * 60 {
			p.Failed(t.Context(), true, context.Canceled)
			<-time.After(time.Second)
		}
		p.Worked(t.Context())
		p.Worked(t.Context())
		if begins, goesOn, ends := strings.Count(log.String(), "consumer paused"),
			strings.Count(log.String(), "still paused"), strings.Count(log.String(), "goes on"); begins != 1 ||
			goesOn != 9 || ends != 1 {
			t.Errorf("%d, %d and %d lines, want 1, 9 and 1:\n%s", begins, goesOn, ends, &log)
		}
	})
}

// What ends while it is paused is not paused any more, and nothing has recovered.
func TestPauseOfWhatEnds(t *testing.T) {
	var log bytes.Buffer
	resumed := 0
	p := &hooks.Pause{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Owner: "kafka:", Panics: &hooks.Panics{},
		Resumed: func(context.Context, observe.Pause) { resumed++ }, Why: func(error) string { return "" },
		Recovered: "it works",
	}
	p.End(t.Context())
	p.Failed(t.Context(), true, context.Canceled)
	p.End(t.Context())
	p.End(t.Context())
	if resumed != 1 || strings.Contains(log.String(), "it works") {
		t.Errorf("Resumed was called %d times, want 1; log:\n%s", resumed, &log)
	}
}

// A hook that is not there costs a comparison.
func BenchmarkNilHook(b *testing.B) {
	p := &hooks.Panics{Logger: slog.New(slog.DiscardHandler)}
	var hook func(context.Context, observe.Pause)
	ctx := b.Context()
	call := func(n int) { // apart, because calls in the body of b.Loop are not inlined
		for range n {
			hooks.Call(ctx, p, "Paused", hook, observe.Pause{})
		}
	}
	for b.Loop() {
		call(1000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/hook")
}
