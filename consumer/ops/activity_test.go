package ops_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// keeper is an ops.ActivityKeeper in memory that may be away.
type keeper struct {
	mu   sync.Mutex
	away bool
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
				trace.Done(ctx, &consumer.Delivery{Consumer: "billing"}, []consumer.MessageOutcome{{Outcome: observe.Processed}, {Outcome: observe.Duplicate}})
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
			t.Errorf("%d in %d minutes are written, want 6 in 4, with those while the database was away: %v", total(), len(k.rows), k.rows)
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
		database, budget := observe.Pause{Name: "billing", Cause: observe.CauseDatabase}, observe.Pause{Name: "billing", Cause: observe.CauseBudget}
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
