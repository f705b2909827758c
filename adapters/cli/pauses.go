package cli

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// pauses is what workers with an ops.Recorder report. The others do not tell whether they are paused.
type pauses struct {
	causes   map[string]observe.Cause // of the consumers that are paused
	reported map[string]bool          // consumers whose workers have an ops.Recorder that has reported lately
}

func (db *Database) pauses(ctx context.Context, now time.Time) (pauses, error) {
	s, ok := db.Store.(interface{ Activity() ops.ActivityKeeper })
	if !ok {
		return pauses{}, nil
	}
	rows, err := s.Activity().Activity(ctx, now.Add(-2*ops.ActivityFresh))
	p := pauses{ops.Paused(rows, now), map[string]bool{}}
	for _, row := range rows {
		if now.Truncate(time.Minute).Sub(row.Minute) < ops.ActivityFresh {
			p.reported[row.Consumer] = true
		}
	}
	return p, err
}

// silent returns the names of the consumers whose workers have reported nothing lately.
func (p pauses) silent(all []ops.ConsumerStatus) (names []string) {
	for _, c := range all {
		if !p.reported[c.Name] {
			names = append(names, Harmless(c.Name))
		}
	}
	return names
}
