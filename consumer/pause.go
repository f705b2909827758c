package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// pause is the consumer's memory of faults that are not a message's: it waits longer the more of them follow each other.
// A lone one, such as a deadlock, is routine; a row of them is logged.
type pause struct {
	notice  *notice
	backoff func(int) time.Duration

	mu     sync.Mutex
	epoch  int // changes with faults: of transactions that fail side by side only one counts
	faults int // in a row
}

// faultsToLog is how many faults in a row are an outage.
const faultsToLog = 3

// now returns the epoch that a transaction begins in.
func (p *pause) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// fault says how long to wait after err of a transaction that began in epoch and has been deferred that many times. about
// names the message, where one alone is concerned.
func (p *pause) fault(ctx context.Context, err error, epoch, deferrals int, about ...any) time.Duration {
	p.mu.Lock()
	if epoch == p.epoch {
		p.epoch++
		p.faults++
	}
	faults := p.faults
	p.mu.Unlock()
	p.notice.paused(ctx, faults >= faultsToLog, err, about...)
	return p.backoff(max(faults, deferrals+1))
}

// over says that the database has committed something.
func (p *pause) over(ctx context.Context) {
	p.mu.Lock()
	faults := p.faults
	if faults > 0 {
		p.epoch++
		p.faults = 0
	}
	p.mu.Unlock()
	if faults > 0 {
		p.notice.resumed(ctx)
	}
}

// noticeEvery is how often a pause that goes on is logged.
const noticeEvery = time.Minute

// notice tells people of a pause: one line when it begins, one a minute while it lasts, one and Trace.Resumed when it is
// over.
type notice struct {
	logger *slog.Logger
	tell   func(ctx context.Context, e Event) // Trace.Resumed
	why    string                             // it pauses
	until  string                             // what it waits for
	over   string                             // why it goes on

	mu    sync.Mutex
	since time.Time // zero: there is no pause
	said  time.Time // when the latest line was written; zero: none was
	err   error     // the latest
}

// paused says that the pause goes on, or begins. Nothing is logged before it is first loud.
func (n *notice) paused(ctx context.Context, loud bool, err error, about ...any) {
	now := time.Now()
	n.mu.Lock()
	if n.since.IsZero() {
		n.since = now
	}
	n.err = err
	begins, goesOn := loud && n.said.IsZero(), !n.said.IsZero() && now.Sub(n.said) >= noticeEvery
	if begins || goesOn {
		n.said = now
	}
	since := n.since
	n.mu.Unlock()
	switch {
	case begins:
		n.logger.ErrorContext(ctx, "consumer paused: "+n.why, append(about, "error", err)...)
	case goesOn:
		n.logger.WarnContext(ctx, "consumer is still paused: "+n.why, append(about,
			"waits_for", n.until, "since", since.UTC().Format(time.RFC3339), "paused", now.Sub(since).Round(time.Second), "error", err)...)
	}
}

// resumed says that the pause is over, if there is one.
func (n *notice) resumed(ctx context.Context) {
	n.mu.Lock()
	since, said, err := n.since, n.said, n.err
	n.since, n.said, n.err = time.Time{}, time.Time{}, nil
	n.mu.Unlock()
	if since.IsZero() {
		return
	}
	took := time.Since(since)
	if !said.IsZero() {
		n.logger.InfoContext(ctx, "consumer goes on: "+n.over, "paused", took.Round(time.Millisecond))
	}
	n.tell(ctx, Event{Err: err, Took: took})
}
