package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup/driver"
)

// closeWithin limits the last write for a partition. If it fails, messages are delivered again.
const closeWithin = 3 * time.Second

// finish writes for the last time how far p is handled, and gives its row up.
func (s *positions) finish(p *partition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), closeWithin)
	defer cancel()
	_, err := s.write(ctx, true, p)
	s.mu.Lock()
	r := s.reading[p]
	delete(s.reading, p)
	s.mu.Unlock()
	switch {
	case err == nil, r == nil, errors.Is(err, errOther):
		return
	case endedByPositions(err): // no process was killed, although the row stays behind
		if err = s.giveUp(ctx, r); err == nil {
			return
		}
	}
	s.m.log.Info("kafka: the database has not taken the last position; messages are delivered again",
		"topic", p.claim.Topic(), "partition", p.claim.Partition(), "error", err)
}

// giveUp says that this session does not read the partition of r any more.
func (s *positions) giveUp(ctx context.Context, r *reading) error {
	_, err := s.store.ChangePosition(ctx, r.PositionID, func(now *driver.Position) (*driver.Position, error) {
		if now == nil || now.Epoch > r.Epoch {
			return nil, nil
		}
		now.Open = false
		return now, nil
	})
	return err
}

// giveUpBegun gives up the rows that the session has begun and never read, after it has ended.
func (s *positions) giveUpBegun() {
	s.mu.Lock()
	var unread []*reading
	for _, r := range s.begun {
		unread = append(unread, r)
	}
	clear(s.begun)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), closeWithin)
	defer cancel()
	for _, r := range unread {
		_ = s.giveUp(ctx, r) // a row that stays open only makes the next session count one that was killed
	}
}
