package audit

import (
	"context"
	"time"
)

// pace waits so that Rate is kept, and reports whether the audit goes on.
type pace struct {
	began time.Time
	cfg   *Config
}

func (p *pace) more(ctx context.Context, r Report) (bool, error) {
	if p.cfg.Progress != nil {
		p.cfg.Progress(r)
	}
	return p.wait(ctx, r.Checked+r.Skipped)
}

// wait is for an audit that has read so many.
func (p *pace) wait(ctx context.Context, read int) (bool, error) {
	if p.cfg.MaxTime > 0 && time.Since(p.began) >= p.cfg.MaxTime {
		return false, nil
	}
	if p.cfg.Rate <= 0 {
		return true, ctx.Err()
	}
	due := p.began.Add(time.Duration(float64(read) / p.cfg.Rate * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
