package httpidem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/usercode"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// errUndo rolls back the work of a handler that has written a status of 400 or more.
var errUndo = errors.New("httpidem: rolled back, as the response's status demands")

// attempt is the outcome of one transaction.
type attempt struct {
	err      error     // of InTx
	known    *earlier  // an earlier request has the key: the handler was not called
	ran      bool      // the handler was called
	failed   error     // what the handler returned
	response *response // what the handler wrote; nil: its response is not used
	undone   bool      // the response's status rolled the work back
	complete bool      // everything was written, so err comes from COMMIT
}

// earlier is the claim of an earlier request with the same key.
type earlier struct {
	verdict dedup.Verdict
	result  []byte
	expires time.Time
	row     int // index in call.recs
}

// attempt claims the key and runs the handler in one transaction.
func (c *call[TTx]) attempt() (a attempt) {
	life := newLifetime(c.r.Context(), c.cfg.Base)
	defer life.end()
	history := c.guard.losses.Begin()
	a.err = c.cfg.Store.InTx(driver.WithClaimWait(life.ctx, c.claimWait()), c.recs, func(tx TTx, claims []dedup.Claim) (err error) {
		if a.known, err = c.earlier(life.ctx, tx, claims); a.known != nil || err != nil {
			return err
		}
		if err := life.detach(c.cfg.FollowClient || c.id == nil); err != nil {
			return err
		}
		a.ran = true
		if a.response, a.failed, err = c.run(life.ctx, tx); err != nil {
			a.undone = errors.Is(err, errUndo)
			return err
		}
		err = c.finalize(life.ctx, tx, a.response)
		a.complete = err == nil
		return err
	})
	c.guard.noteLosses(history, c.recs, a)     // not after a panic: then nothing is committed
	if a.err != nil && life.ctx.Err() != nil { // stores may report the end of ctx in other words
		a.err = &endedError{err: a.err, cause: context.Cause(life.ctx)}
	}
	return a
}

// endedError is an error of the store after its ctx has ended.
type endedError struct{ err, cause error }

func (e *endedError) Error() string   { return e.cause.Error() + ": " + e.err.Error() }
func (e *endedError) Unwrap() []error { return []error{e.err, e.cause} }

// earlier returns the claim of an earlier request, or nil if there is none. Rows that were inserted beside it are
// deleted again: no response belongs to them. COMMIT follows, and not ROLLBACK, because only COMMIT waits until the
// earlier one is safe on standbys.
func (c *call[TTx]) earlier(ctx context.Context, tx TTx, claims []dedup.Claim) (found *earlier, err error) {
	if len(claims) != len(c.recs) {
		return nil, errors.New("httpidem: the store did not answer each claim")
	}
	var mine []dedup.Key
	for i, claim := range claims {
		switch {
		case claim.Verdict == dedup.First:
			mine = append(mine, c.recs[i].Key)
		case found == nil || found.verdict == dedup.Unprovable || found.result == nil && claim.Result != nil:
			found = &earlier{verdict: claim.Verdict, result: bytes.Clone(claim.Result), expires: claim.ExpiresAt, row: i}
		}
	}
	if found == nil || len(mine) == 0 {
		return found, nil
	}
	return found, c.cfg.Store.Forget(ctx, tx, mine...)
}

// run calls the handler with a fresh copy of the request. failed is what the handler returned, and err is nil if the
// response counts.
func (c *call[TTx]) run(ctx context.Context, tx TTx) (res *response, failed, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	seed := "" // without a key, the outbox derives no IDs
	if c.id != nil {
		// a key that comes again after the Window, with other content, must not get the IDs of the first messages
		seed = string(c.id.Derive("outbox", string(c.content)))
	}
	ctx, endScope := outboxdriver.WithScope(ctx, seed)
	defer endScope()
	e := &execution{guard: c.guard, id: c.id, tx: tx}
	defer e.end()
	ctx = context.WithValue(ctx, executionKey{}, e)
	w := newRecorder(c.w, c.cfg.MaxResponse)
	defer w.close()
	r := c.request(ctx)
	defer removeFiles(r)

	failed = usercode.Error(c.at.handle(ctx, tx, w, r)) // a panic reaches the layers outside
	switch {
	case wroteAround(c.w):
		return nil, failed, errors.Join(errWroteAround, failed)
	case ctx.Err() != nil: // it is unknown which of its statements the end of ctx has stopped
		return nil, failed, errors.Join(context.Cause(ctx), failed)
	case failed != nil && !w.written():
		return nil, failed, failed
	}
	if res, err = w.finish(); err != nil {
		return nil, failed, errors.Join(err, failed)
	}
	if failed == nil && c.at.undoes(res.status, e.used()) {
		return res, nil, errUndo
	}
	return res, failed, failed
}

var errWroteAround = errors.New("httpidem: the handler wrote to a ResponseWriter of its own, so the client has a response before COMMIT: " +
	"write to the one that httpidem passes; in gin do not call c.Next inside Wrap")

// wroteAround reports whether something was written to w itself and not to the recorder. Only the writers of some
// routers, such as gin's, know that.
func wroteAround(w http.ResponseWriter) bool {
	writer, knows := w.(interface{ Written() bool })
	return knows && writer.Written()
}

// request returns a copy of the request, so that an attempt sees nothing of an earlier one.
func (c *call[TTx]) request(ctx context.Context) *http.Request {
	return c.withBody(c.r.Clone(ctx))
}

// removeFiles removes the files of a copy's form. net/http's server removes only those of its own request.
func removeFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

// withBody gives a copy of the request a body of its own, so that reading it takes nothing from other copies.
func (c *call[TTx]) withBody(r *http.Request) *http.Request {
	r.Body, r.GetBody = io.NopCloser(bytes.NewReader(c.body)), nil
	r.ContentLength, r.TransferEncoding = int64(len(c.body)), nil
	if len(c.body) == 0 {
		r.Body = http.NoBody
	}
	return r
}

// finalize makes the transaction ready for COMMIT. Neither the client nor Config.Timeout ends it any more, so it has a
// limit of its own, as COMMIT and ROLLBACK have in the stores: a connection that the network has swallowed must not
// keep its slot.
func (c *call[TTx]) finalize(ctx context.Context, tx TTx, res *response) error {
	ctx, cancel := context.WithTimeoutCause(ctx, claimWithin, errUnanswered)
	defer cancel()
	err := c.verify(ctx, tx)
	if err == nil {
		err = c.save(ctx, tx, res)
	}
	if err != nil && ctx.Err() != nil {
		err = &endedError{err: err, cause: context.Cause(ctx)}
	}
	return err
}

// verify returns an error if the handler has ended its transaction. Without this, SaveResult could store the response
// of work that is not committed beside a claim that is.
func (c *call[TTx]) verify(ctx context.Context, tx TTx) error {
	if verifier, ok := c.cfg.Store.(driver.TxVerifier[TTx]); ok && c.id != nil {
		if err := verifier.VerifyTx(ctx, tx); !errors.Is(err, dedup.ErrTemporary) { // no other handler follows
			return err
		}
	}
	return nil
}

// save stores the response in each row, encrypted and with a fingerprint of its own: a process that knows only the
// secret of one row can replay it.
func (c *call[TTx]) save(ctx context.Context, tx TTx, res *response) error {
	kept := res.stored(c.cfg.Headers)
	for i, rec := range c.recs {
		var seal func([]byte) ([]byte, error)
		if c.cfg.Seal != nil {
			seal = func(plain []byte) ([]byte, error) {
				var sealed []byte
				err := usercode.Err("httpidem: Config.Seal",
					func() (err error) { sealed, err = c.cfg.Seal(plain, []byte(rec.Key.ID)); return err })
				return sealed, err
			}
		}
		result, err := encode(c.fingerprints[i], kept, seal)
		if err != nil {
			return err
		}
		if err := c.guard.results.SaveResult(ctx, tx, rec.Key, result); err != nil {
			return err
		}
	}
	return nil
}

// record stores a response in a transaction of its own, after the handler's work was rolled back. Another request may
// have completed since then: then that one counts.
func (c *call[TTx]) record(res *response) (a attempt) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.r.Context()), claimWithin, errBusy)
	defer cancel()
	history := c.guard.losses.Begin()
	a.err = c.cfg.Store.InTx(driver.WithClaimWait(ctx, c.claimWait()), c.recs, func(tx TTx, claims []dedup.Claim) (err error) {
		if a.known, err = c.earlier(ctx, tx, claims); a.known != nil || err != nil {
			return err
		}
		return c.save(ctx, tx, res)
	})
	c.guard.noteLosses(history, c.recs, a)
	return a
}
