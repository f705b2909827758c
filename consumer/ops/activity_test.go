package ops_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// keeper is an ops.ActivityKeeper in memory that may be away, or whose answers may be lost.
type keeper struct {
	mu   sync.Mutex
	away bool
	lost bool
	rows map[string]ops.Activity
}

func (k *keeper) RecordActivity(_ context.Context, rows []ops.Activity) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return errors.New("connection refused")
	}
	for _, r := range rows {
		k.rows[r.Consumer+" "+r.Minute.Format("15:04")+" "+r.Node] = r
	}
	if k.lost {
		return errors.New("unexpected EOF")
	}
	return nil
}

func (k *keeper) Activity(context.Context, time.Time) ([]ops.Activity, error) { return nil, nil }

func TestRecorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{rows: map[string]ops.Activity{}}
		r := ops.NewRecorder(k)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		trace := r.Trace()
		done := func(n int) {
			for range n {
				trace.Done(ctx, &consumer.Delivery{Consumer: "billing"},
					[]consumer.MessageOutcome{{Outcome: observe.Processed}, {Outcome: observe.Duplicate}})
			}
		}
		total := func() (n int64) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, row := range k.rows {
				n += row.Messages[observe.Processed]
			}
			return n
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		done(3)
		pass(11 * time.Second)
		if total() != 3 {
			t.Errorf("%d are written after 11 s, want 3", total())
		}
		away := func(yes bool) { k.mu.Lock(); defer k.mu.Unlock(); k.away = yes }
		away(true)
		done(2)
		trace.Paused(ctx, observe.Pause{Name: "billing", Cause: observe.CauseDatabase})
		pass(3 * time.Minute)
		done(1)
		away(false)
		pass(11 * time.Second)
		if total() != 6 || len(k.rows) != 4 {
			t.Errorf("%d in %d minutes are written, want 6 in 4, with those while the database was away: %v", total(),
				len(k.rows), k.rows)
		}
		trace.Resumed(ctx, observe.Pause{Name: "billing", Cause: observe.CauseDatabase})
		done(1)
		stop()
		if err := <-ended; err != nil || total() != 7 {
			t.Errorf("at the end: %v, %d are written, want 7", err, total())
		}
		paused := 0
		for _, row := range k.rows {
			if row.Paused != "" {
				paused++
			}
		}
		if paused != 3 {
			t.Errorf("%d rows say that the consumer was paused, want 3", paused)
		}
	})
}

// What one process has counted is kept when another one begins, even on the same machine with the same process ID, and
// a write whose answer was lost does not count twice.
func TestRecorderCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{rows: map[string]ops.Activity{}, lost: true}
		for range 3 { // lives of a process, in one minute
			r := ops.NewRecorder(k)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- r.Run(ctx) }()
			for range 5 {
				r.Trace().Done(ctx, &consumer.Delivery{Consumer: "billing"},
					[]consumer.MessageOutcome{{Outcome: observe.Processed}})
			}
			<-time.After(15 * time.Second)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		n := int64(0)
		for _, row := range k.rows {
			n += row.Messages[observe.Processed]
		}
		if n != 15 {
			t.Errorf("%d are written, want 15", n)
		}
	})
}

// A consumer whose database works again may still be paused because of its budget.
func TestRecorderOfTwoPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{rows: map[string]ops.Activity{}}
		r := ops.NewRecorder(k)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		trace := r.Trace()
		database, budget := observe.Pause{Name: "billing", Cause: observe.CauseDatabase},
			observe.Pause{Name: "billing", Cause: observe.CauseBudget}
		for _, step := range []struct {
			hook  func(context.Context, observe.Pause)
			pause observe.Pause
			want  observe.Cause
		}{
			{trace.Paused, database, observe.CauseDatabase},
			{trace.Paused, budget, observe.CauseDatabase},
			{trace.Resumed, database, observe.CauseBudget},
			{trace.Paused, database, observe.CauseBudget},
			{trace.Resumed, database, observe.CauseBudget},
			{trace.Resumed, budget, ""},
		} {
			step.hook(ctx, step.pause)
			<-time.After(time.Minute)
			synctest.Wait()
			k.mu.Lock()
			var latest ops.Activity
			for _, row := range k.rows {
				if row.Minute.After(latest.Minute) {
					latest = row
				}
			}
			k.mu.Unlock()
			if latest.Paused != step.want {
				t.Errorf("paused %q, want %q", latest.Paused, step.want)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A consumer is paused while the latest report of any of its processes says so, and processes that report nothing do
// not count.
func TestPaused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 10, 30, 20, 0, time.UTC)
	row := func(minutesAgo int, consumer, node string, paused observe.Cause) ops.Activity {
		return ops.Activity{
			Minute:   now.Truncate(time.Minute).Add(-time.Duration(minutesAgo) * time.Minute),
			Consumer: consumer, Node: node, Paused: paused,
		}
	}
	got := ops.Paused([]ops.Activity{
		row(3, "dead", "a", observe.CauseBudget),
		row(1, "resumed", "a", observe.CauseBudget),
		row(1, "billing", "a", observe.CauseDatabase),
		row(0, "resumed", "a", ""),
		row(0, "billing", "b", ""),
	}, now)
	if want := map[string]observe.Cause{"billing": observe.CauseDatabase}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
