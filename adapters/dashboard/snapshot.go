package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer/ops"
)

const (
	snapshotAge   = 2 * time.Second  // how old a snapshot may be
	storeTimeout  = 10 * time.Second // how long a page waits for the database
	maxOpenShown  = 20               // open actions in a snapshot
	activityShown = 30 * time.Minute // how far the rates go back
)

// snapshot is what the live pages show. After a failure it has the parts of the last success.
type snapshot struct {
	Status  ops.Status
	Open    []ops.Action // that have not ended, newest first, at most maxOpenShown
	Rates   map[string]rates
	Known   bool // Status was read at least once
	Err     error
	Failing time.Time // since when Err occurs
}

// stale returns for how long nothing could be read, so that the snapshot is older; 0: it is new.
func (s *snapshot) stale() time.Duration {
	if s.Err == nil {
		return 0
	}
	return max(time.Since(s.Failing), time.Second)
}

// snapshots shares a snapshot between all viewers.
type snapshots struct {
	take func(ctx context.Context, last snapshot) snapshot

	mu     sync.Mutex
	last   snapshot
	taken  time.Time
	taking chan struct{} // closed at the end of a reading; nil: none goes on
}

// get returns a snapshot that is at most snapshotAge old, or the error of ctx. One caller's end does not end the
// reading, because others wait for it.
func (s *snapshots) get(ctx context.Context) (snapshot, error) {
	s.mu.Lock()
	if !s.taken.IsZero() && time.Since(s.taken) < snapshotAge {
		defer s.mu.Unlock()
		return s.last, nil
	}
	if s.taking == nil {
		s.taking = make(chan struct{})
		go s.run(context.WithoutCancel(ctx), s.last)
	}
	taking := s.taking
	s.mu.Unlock()
	select {
	case <-taking:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last, nil
	case <-ctx.Done():
		return snapshot{}, context.Cause(ctx)
	}
}

func (s *snapshots) run(ctx context.Context, last snapshot) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	next := s.take(ctx, last)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.taken = next, time.Now()
	close(s.taking)
	s.taking = nil
}

// outdate makes the next page show what an action has just changed.
func (s *snapshots) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = time.Time{}
}

func (d *Dashboard) takeSnapshot(ctx context.Context, last snapshot) snapshot {
	status, err := d.cfg.Store.Status(ctx)
	var open []ops.Action
	if err == nil {
		open, err = d.cfg.Store.Actions(ctx, ops.ActionFilter{Open: true, Limit: maxOpenShown})
	}
	var seen map[string]rates
	if err == nil {
		seen, err = d.rates(ctx, status.Now)
	}
	if err == nil {
		return snapshot{Status: status, Open: open, Rates: seen, Known: true}
	}
	if last.Err == nil {
		last.Failing = time.Now()
		d.cfg.Logger.WarnContext(ctx, "dashboard: the state of the database cannot be read", "err", err)
	}
	last.Err = err
	return last
}
