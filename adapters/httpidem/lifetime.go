package httpidem

import (
	"context"
	"errors"
	"time"
)

var (
	errClientGone = errors.New("the client has disconnected")
	errShutdown   = errors.New("Config.Base has ended")
	errBusy       = errors.New("the database did not answer the claim in time, or its pool has no free connection")
	errTimeout    = errors.New("the handler took longer than Config.Timeout")
	errUnanswered = errors.New("the database did not take the response in time")
)

// claimWithin limits how long a transaction may take to begin and to claim its key, and how long to take the response.
const claimWithin = 5 * time.Second

// lifetime is the context of one transaction. It ends with the client's request and after claimWithin, until detach is
// called: a client that is gone must not start work, and work that has begun must not depend on the client.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	client, base func() (stopped bool)
	claim        *time.Timer
}

func newLifetime(request, base context.Context) *lifetime {
	l := &lifetime{base: func() bool { return true }}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(request))
	l.client = context.AfterFunc(request, func() { l.cancel(errClientGone) })
	if base != nil {
		l.base = context.AfterFunc(base, func() { l.cancel(errShutdown) })
	}
	l.claim = time.AfterFunc(claimWithin, func() { l.cancel(errBusy) })
	return l
}

// detach returns nil if the handler may begin. Unless followClient is true, the client's disconnect no longer counts.
func (l *lifetime) detach(followClient bool) error {
	switch {
	case !l.claim.Stop():
		return errBusy
	case !followClient && !l.client(): // the function that cancels ctx may only have begun
		return errClientGone
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	}
	return nil
}

// end must be called when the transaction has ended.
func (l *lifetime) end() {
	l.claim.Stop()
	l.client()
	l.base()
	l.cancel(context.Canceled)
}
