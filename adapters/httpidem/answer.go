package httpidem

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
)

const (
	// maxAttempts bounds how often a request is tried while the database fails.
	maxAttempts = 3

	// maxClaimWait is how long one claim waits in the database, with a connection, for a request in another process. The rest of
	// Config.Wait passes without one.
	maxClaimWait = 100 * time.Millisecond
)

func (c *call[TTx]) claimWait() time.Duration { return min(c.cfg.Wait, maxClaimWait) }

// answer makes attempts until the request has an answer, and sends it.
func (c *call[TTx]) answer() {
	waitUntil := c.began.Add(c.cfg.Wait)
	for n, polls := 1, 1; ; {
		a, refused := c.inSlot(c.attempt)
		if refused != nil {
			c.refuse(refused)
			return
		}
		var pause time.Duration
		switch {
		case !a.ran && errors.Is(a.err, dedup.ErrInFlight) && time.Now().Before(waitUntil):
			pause = min(backoff.HalfJitter(20*time.Millisecond, 250*time.Millisecond, polls), time.Until(waitUntil))
			polls++
		case n < maxAttempts && c.mayRepeat(a):
			c.inDoubt = c.inDoubt || a.complete
			pause = backoff.HalfJitter(10*time.Millisecond, 100*time.Millisecond, n)
			n++
		default:
			c.finish(a)
			return
		}
		if await.Sleep(c.r.Context(), pause) != nil {
			c.refuse(refuse(c.doubtOr(Disconnected), errors.Join(errClientGone, a.err)))
			return
		}
	}
}

// inSlot makes an attempt as one of Config.MaxConcurrent.
func (c *call[TTx]) inSlot(try func() attempt) (a attempt, refused *refusal) {
	select {
	case c.guard.slots <- struct{}{}:
	default:
		timer := time.NewTimer(claimWithin)
		defer timer.Stop()
		select {
		case c.guard.slots <- struct{}{}:
		case <-timer.C:
			return a, refuse(c.doubtOr(Busy), errors.New("Config.MaxConcurrent transactions are running"))
		case <-c.r.Context().Done():
			return a, refuse(c.doubtOr(Disconnected), errClientGone)
		}
	}
	defer func() { <-c.guard.slots }()
	return try(), nil
}

// mayRepeat reports whether another attempt may help, and cannot do harm. An attempt whose COMMIT got no answer is repeated only if the
// new claim shows whether it was committed.
func (c *call[TTx]) mayRepeat(a attempt) bool {
	switch {
	case a.err == nil || !c.transient(a):
		return false
	case !a.ran:
		return true
	case a.complete:
		return c.at.repeats && c.id != nil
	}
	return c.at.repeats
}

// transient reports whether the database was at fault, so that the same request may succeed later.
func (c *call[TTx]) transient(a attempt) bool {
	if errors.As(a.err, new(*endedError)) || errors.As(a.err, new(*dedup.InDoubtError)) || errors.Is(a.err, dedup.ErrTxEnded) {
		return false
	}
	final := a.response != nil && !a.complete && a.response.status < 500 // the handler has seen no error, and COMMIT was not needed
	return c.cfg.Store.Retryable(a.err) && !(final && a.failed == nil && !c.cfg.commits(a.response.status))
}

// doubtOr returns the reason, or Unavailable if the request may be committed.
func (c *call[TTx]) doubtOr(reason Reason) Reason {
	if c.inDoubt {
		return Unavailable
	}
	return reason
}

// finish sends the answer for the last attempt.
func (c *call[TTx]) finish(a attempt) {
	switch {
	case a.err == nil && a.known != nil:
		c.answerKnown(a.known)
	case a.err == nil && a.complete:
		c.cfg.Trace.Committed(c.r.Context(), c.event(a.response.status))
		a.response.send(c.w)
	default:
		if reason := c.reason(a); reason != "" {
			c.refuse(refuse(c.doubtOr(reason), a.err))
			return
		}
		c.finishUndone(a)
	}
}

// reason says why an attempt failed. It is empty if the handler decided about the answer.
func (c *call[TTx]) reason(a attempt) Reason {
	ended := errors.Is(a.err, dedup.ErrTxEnded)
	switch {
	case errors.Is(a.err, errWroteAround):
		return Misused
	case errors.Is(a.err, errTimeout):
		return TimedOut
	case errors.Is(a.err, errBusy):
		return Busy
	case errors.Is(a.err, errClientGone):
		return Disconnected
	case errors.Is(a.err, errShutdown):
		return Unavailable
	case errors.Is(a.err, errTooLong):
		return ResponseTooLong
	case ended:
		return Failed
	case errors.As(a.err, new(*dedup.InDoubtError)), c.transient(a):
		return Unavailable
	case !a.ran && errors.Is(a.err, dedup.ErrInFlight):
		return InFlight
	case !a.ran && errors.Is(a.err, dedup.ErrFuture):
		return MalformedKey
	case a.failed != nil, a.response != nil && !a.complete && !c.cfg.commits(a.response.status):
		return ""
	}
	return Failed
}

// finishUndone answers a request whose handler failed or wrote a status for which nothing is committed.
func (c *call[TTx]) finishUndone(a attempt) {
	res := a.response
	reason := Reason("")
	if a.failed != nil && (res == nil || res.status < 400) {
		res, reason = refuse(Failed, a.failed).response(), Failed
	}
	if c.id == nil || res.status < 400 || !c.cfg.records(res.status) {
		if reason != "" {
			c.refuse(refuse(reason, a.failed))
			return
		}
		e := c.event(res.status)
		e.Err = a.failed
		c.logFailure(e)
		c.cfg.Trace.Unstored(c.r.Context(), e)
		res.send(c.w)
		return
	}
	stored, refused := c.inSlot(func() attempt { return c.record(res) })
	switch {
	case refused != nil:
		c.refuse(refused)
	case stored.err == nil && stored.known != nil:
		c.answerKnown(stored.known)
	case stored.err == nil:
		e := c.event(res.status)
		e.Reason, e.Err = reason, a.failed
		c.logFailure(e)
		c.cfg.Trace.Recorded(c.r.Context(), e)
		res.send(c.w)
	case errors.Is(stored.err, dedup.ErrInFlight):
		c.refuse(refuse(InFlight, stored.err))
	default: // the client must not see as final what a retry may change
		c.refuse(refuse(Unavailable, stored.err))
	}
}

func (c *call[TTx]) logFailure(e Event) {
	if e.Err != nil {
		c.cfg.Logger.ErrorContext(c.r.Context(), "httpidem: a handler failed",
			"guard", c.cfg.Name, "method", c.r.Method, "pattern", c.r.Pattern, "status", e.Status, "error", e.Err)
	}
}

// answerKnown answers a request whose key was used before. The handler never runs.
func (c *call[TTx]) answerKnown(k *earlier) {
	if k.verdict == dedup.Unprovable {
		c.refuse(refuse(Forgotten, dedup.ErrUnprovable))
		return
	}
	same, err := matches(k.result, c.fingerprints[k.row])
	switch {
	case err != nil:
		c.refuse(refuse(NotRetained, err))
		return
	case !same:
		c.refuse(refuse(Mismatch, dedup.ErrMismatch))
		return
	}
	var open func([]byte) ([]byte, error)
	if c.cfg.Open != nil {
		open = func(sealed []byte) ([]byte, error) { return c.cfg.Open(sealed, []byte(c.recs[k.row].Key.ID)) }
	}
	res, err := decode(k.result, open)
	switch {
	case err != nil:
		c.refuse(refuse(NotRetained, err))
		return
	case !accepts(c.r.Header, res.header["Content-Encoding"]):
		c.refuse(refuse(NotAcceptable, errors.New("the stored Content-Encoding is not in Accept-Encoding")))
		return
	}
	c.replay(c.r.Context(), res)
}

func (c *call[TTx]) replay(ctx context.Context, res *response) {
	res.header.Set("Idempotent-Replayed", "true")
	c.cfg.Trace.Replayed(ctx, c.event(res.status))
	res.send(c.w)
}
