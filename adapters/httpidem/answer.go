package httpidem

import (
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

const (
	// maxAttempts bounds how often a request is tried while the database fails.
	maxAttempts = 3

	// maxClaimWait is how long one claim waits in the database, with a connection, for a request in another process.
	// The rest of Config.Wait passes without one.
	maxClaimWait = 100 * time.Millisecond
)

func (c *call[TTx]) claimWait() time.Duration { return min(c.cfg.Wait, maxClaimWait) }

// answer makes attempts until the request has an answer.
func (c *call[TTx]) answer() *response {
	waitUntil := c.began.Add(c.cfg.Wait)
	for i, rec := range c.recs {
		c.recs[i].Redelivered = c.guard.recent.has(rec.Key.Hash())
	}
	for n, polls := 1, 1; ; {
		began := time.Now()
		a, refused := c.inSlot(c.attempt)
		if refused != nil {
			return c.refuse(refused)
		}
		c.unanswered = c.unanswered || c.commitUnknown(a)
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
			return c.finish(a)
		}
		err := await.Sleep(c.r.Context(), pause)
		if !a.ran && errors.Is(a.err, dedup.ErrInFlight) {
			c.waited += time.Since(began)
		}
		if err != nil {
			return c.refuse(refuse(c.doubtOr(Disconnected), errors.Join(errClientGone, a.err)))
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

// mayRepeat reports whether another attempt may help, and cannot do harm. An attempt whose COMMIT got no answer is
// repeated only if the new claim shows whether it was committed.
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
	if errors.As(a.err, new(*endedError)) || errors.As(a.err, new(*dedup.InDoubtError)) ||
		errors.Is(a.err, dedup.ErrTxEnded) {
		return false
	}
	// the handler saw no error of the database, and its work needs no COMMIT
	final := a.undone && a.response.status < 500
	return c.cfg.Store.Retryable(a.err) && !final
}

// commitUnknown reports whether an attempt's COMMIT got no answer.
func (c *call[TTx]) commitUnknown(a attempt) bool {
	if !a.complete || a.err == nil {
		return false
	}
	if classifier, ok := c.cfg.Store.(driver.FaultClassifier); ok {
		return classifier.Result(a.err) == observe.CommitUnknown
	}
	return c.cfg.Store.Retryable(a.err)
}

// doubtOr returns the reason, or Unavailable if the request may be committed.
func (c *call[TTx]) doubtOr(reason Reason) Reason {
	if c.inDoubt {
		return Unavailable
	}
	return reason
}

// answered remembers that the keys have a stored response.
func (c *call[TTx]) answered() {
	c.guard.recordSource(c.r.Context())
	for _, rec := range c.recs {
		c.guard.recent.add(rec.Key.Hash())
	}
}

// finish returns the answer for the last attempt.
func (c *call[TTx]) finish(a attempt) *response {
	switch {
	case a.err == nil && a.known != nil:
		return c.answerKnown(a.known)
	case a.err == nil && a.complete:
		c.answered()
		decision := First
		if c.id == nil {
			decision = Unkeyed
		}
		c.cfg.Trace.Committed(c.r.Context(), c.event(decision, a.response.status))
		return a.response
	}
	if reason := c.reason(a); reason != "" {
		return c.refuse(refuse(c.doubtOr(reason), a.err))
	}
	return c.finishUndone(a)
}

// reason says why an attempt failed. It is empty if the handler decided about the answer.
func (c *call[TTx]) reason(a attempt) Reason {
	switch {
	case errors.Is(a.err, errWroteAround):
		return Misused
	case errors.As(a.err, new(*dedup.InDoubtError)):
		// first, because the work may be committed even if the context ended
		return Unavailable
	case errors.Is(a.err, dedup.ErrTxEnded):
		return Failed
	case errors.Is(a.err, errTimeout):
		return TimedOut
	case errors.Is(a.err, errBusy):
		return Busy
	case errors.Is(a.err, errClientGone):
		return Disconnected
	case errors.Is(a.err, errShutdown), errors.Is(a.err, errUnanswered):
		return Unavailable
	case errors.Is(a.err, errTooLong):
		return ResponseTooLong
	case c.transient(a):
		return Unavailable
	case a.ran && errors.Is(a.err, dedup.ErrInFlight): // of LockKeys: another request has a row that the handler needs
		return Busy
	case errors.Is(a.err, dedup.ErrInFlight):
		return InFlight
	case !a.ran && errors.Is(a.err, dedup.ErrFuture):
		return MalformedKey
	case a.failed != nil, a.undone:
		return ""
	}
	return Failed
}

// finishUndone answers a request whose work was rolled back: the handler failed, or wrote a status of 400 or more.
func (c *call[TTx]) finishUndone(a attempt) *response {
	res := a.response
	var failure *refusal
	if a.failed != nil && (res == nil || res.status < 400) {
		failure = refuse(Failed, a.failed)
		res = &response{status: failure.status()} // what Config.Problem writes for it follows
	}
	if c.id == nil || !c.cfg.records(res.status) {
		if failure != nil {
			return c.refuse(failure)
		}
		e := c.event(Undone, res.status)
		e.Err = a.failed
		c.logFailure(e)
		c.cfg.Trace.Unstored(c.r.Context(), e)
		return res
	}
	reason := Reason("")
	if failure != nil {
		reason, res = failure.reason, failure.response(c.r, c.cfg.Header, c.cfg.Problem)
	}
	stored, refused := c.inSlot(func() attempt { return c.record(res) })
	switch {
	case refused != nil:
		return c.refuse(refused)
	case stored.err == nil && stored.known != nil:
		return c.answerKnown(stored.known)
	case stored.err == nil:
		c.answered()
		e := c.event(Recorded, res.status)
		e.Reason, e.Err = reason, a.failed
		c.logFailure(e)
		c.cfg.Trace.Recorded(c.r.Context(), e)
		return res
	case errors.Is(stored.err, dedup.ErrInFlight):
		return c.refuse(refuse(InFlight, stored.err))
	default: // a stored response would be final, and this one is not stored, so a retry may have another result
		return c.refuse(refuse(Unavailable, stored.err))
	}
}

func (c *call[TTx]) logFailure(e Event) {
	if e.Err != nil || e.Status >= 500 {
		c.cfg.Logger.ErrorContext(c.r.Context(), "httpidem: a handler failed",
			"guard", c.cfg.Name, "method", c.r.Method, "pattern", c.r.Pattern, "status", e.Status, "error", e.Err)
	}
}

// answerKnown answers a request whose key was used before. The handler never runs.
func (c *call[TTx]) answerKnown(k *earlier) *response {
	c.row = k.row // under a former secret it is not the first
	c.answered()
	if k.verdict == dedup.Unprovable {
		return c.refuse(refuse(Forgotten, dedup.ErrUnprovable))
	}
	same, err := matches(k.result, c.fingerprints[k.row])
	switch {
	case err != nil:
		return c.refuse(refuse(NotRetained, err))
	case !same:
		return c.refuse(refuse(Mismatch, dedup.ErrMismatch))
	}
	var open func([]byte) ([]byte, error)
	if c.cfg.Open != nil {
		open = func(sealed []byte) ([]byte, error) {
			var plain []byte
			err := usercode.Err("httpidem: Config.Open",
				func() (err error) { plain, err = c.cfg.Open(sealed, []byte(c.recs[k.row].Key.ID)); return err })
			return plain, err
		}
	}
	res, err := decode(k.result, open)
	switch {
	case err != nil:
		return c.refuse(refuse(NotRetained, err))
	case !accepts(c.r.Header, res.header["Content-Encoding"]):
		return c.refuse(refuse(NotAcceptable, errors.New("the stored Content-Encoding is not in Accept-Encoding")))
	}
	res.header.Set(replayedHeader, "true")
	e := c.event(Replayed, res.status)
	if !k.expires.IsZero() {
		e.Age = max(0, time.Since(k.expires.Add(-c.cfg.Window)))
	}
	c.cfg.Trace.Replayed(c.r.Context(), e)
	return res
}
