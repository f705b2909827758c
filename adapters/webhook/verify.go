package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/usercode"
)

// verifyAgain is Retry-After when a delivery could not be checked.
const verifyAgain = 30 * time.Second

var errAnswerDue = errors.New("webhook: the sender's deadline is near")

// verify returns the events of d, or the response to a delivery that has none.
func (r *Receiver) verify(ctx context.Context, d *Delivery, answerAt time.Time) ([]Event, *response) {
	ctx, cancel := context.WithDeadlineCause(ctx, answerAt, errAnswerDue)
	defer cancel()
	events, err := r.callVerifier(ctx, d)
	_, panicked := errors.AsType[*consumer.PanicError](err)
	switch why := RefusalOf(err); {
	case panicked:
		return nil, failed(fmt.Errorf("the Verifier panicked: %w", err))
	case why != "":
		return nil, refusal(r.cfg.RefusalStatus, why, err)
	case err != nil:
		return nil, later(verifyAgain, fmt.Errorf("it could not be verified: %w", err))
	case len(events) == 0:
		return nil, failed(fmt.Errorf("%T returned neither events nor an error", r.cfg.Verifier))
	}
	for i := range events {
		if err := r.checkEvent(&events[i]); err != nil {
			return nil, failed(fmt.Errorf("%T returned a wrong event: %w", r.cfg.Verifier, err))
		}
	}
	return events, nil
}

func (r *Receiver) callVerifier(ctx context.Context, d *Delivery) (events []Event, err error) {
	ended := usercode.Run(func() { events, err = r.cfg.Verifier.Verify(ctx, d) })
	switch {
	case ended == nil:
		return events, usercode.Error(err)
	case ended.Value != nil:
		return nil, usercode.Error(&consumer.PanicError{Value: ended.Value, Stack: ended.Stack})
	default:
		return nil, ended.Of(fmt.Sprintf("%T.Verify", r.cfg.Verifier))
	}
}

// checkEvent checks what keeps the keys of two senders apart, and what a Reply may say.
func (r *Receiver) checkEvent(e *Event) error {
	if tenant := e.Message.Tenant; e.Drop == "" && tenant != r.source.Name &&
		!strings.HasPrefix(tenant, r.source.Name+"/") {
		return fmt.Errorf("its Tenant is %q, and must be the Source.Name %q, or begin with it and a slash", tenant,
			r.source.Name)
	}
	if e.Reply != nil {
		return e.Reply.validate()
	}
	return nil
}

// refusalLog limits how often refusals are logged, because any stranger can cause one.
type refusalLog struct {
	mu     sync.Mutex
	logged map[Refusal]time.Time
	silent map[Refusal]int // how many were not logged since
}

const refusalLogEvery = time.Second

// next reports whether a refusal is logged now, and how many before it were not.
func (l *refusalLog) next(why Refusal) (unlogged int, log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged == nil {
		l.logged, l.silent = map[Refusal]time.Time{}, map[Refusal]int{}
	}
	now := time.Now()
	if last, found := l.logged[why]; found && now.Sub(last) < refusalLogEvery {
		l.silent[why]++
		return 0, false
	}
	unlogged, l.logged[why], l.silent[why] = l.silent[why], now, 0
	return unlogged, true
}

func (r *Receiver) logRefused(ctx context.Context, req *http.Request, res *response) {
	unlogged, log := r.refused.next(res.refusal)
	if !log {
		return
	}
	attrs := []any{
		"source", r.source.Name, "reason", string(res.refusal), "status", res.status, "remote",
		req.RemoteAddr, "error", res.err,
	}
	if unlogged > 0 {
		attrs = append(attrs, "unlogged", unlogged)
	}
	r.cfg.Logger.WarnContext(ctx, "webhook: delivery refused", attrs...)
}
