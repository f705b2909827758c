package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// attempt is one publication of one call.
type attempt[TTx any] struct {
	calls *Calls[TTx]
	ctx   context.Context // of the publication
	call  Call
	known driver.Call
	read  time.Time // before known was read

	database database
	token    int64 // of the try of this publication; 0: there is none
}

// raced is how long a message waits when another relay makes its call.
const raced = time.Second

// do records a try, makes the call, and settles it. only says that earlier tries have had no effect.
func (a *attempt[TTx]) do(only bool) error {
	c, began := a.calls, time.Now()
	if !a.enough() {
		return outboxdriver.ErrNotTried
	}
	only = only || a.known.Unanswered == 0
	try := driver.Try{
		Token: rand.Int64N(1<<62) + 1, Within: c.cfg.Timeout, Fingerprint: a.call.fingerprint, Only: only,
	}
	recorded, err := c.keeper.BeginTry(a.ctx, a.call.key, a.known, try)
	switch a.token = try.Token; {
	case err != nil:
		a.takeBack() // it may be recorded all the same
		return c.storeFailed("record a try", err)
	case !recorded:
		return &outboxdriver.DeferError{After: raced, Err: fmt.Errorf("calls: %s: another relay makes this call", c.cfg.Name)}
	}
	// The record says that the try ends Timeout after it was written, which was later.
	ctx, cancel := context.WithDeadline(a.ctx, began.Add(c.cfg.Timeout))
	defer cancel()
	if late(ctx) {
		a.takeBack()
		return outboxdriver.ErrNotTried
	}
	var result Result
	err = usercode.Err("Do", func() (err error) {
		result, err = c.cfg.Do(ctx, a.call)
		return err
	})
	var retry *retryError
	switch {
	case err == nil:
		return a.done(result)
	case errors.As(err, &retry):
		a.takeBack()
		return &outbox.UnavailableError{After: retry.after, Err: a.failed("Do", err)}
	case outbox.IsPermanent(err) && !only: // it proves nothing about the tries before
		a.takeBack()
		return a.refusedNow(err)
	case outbox.IsPermanent(err):
		return a.refused(err)
	}
	return &outbox.InDoubtError{Err: fmt.Errorf("%w; its request may be under way until %s", a.failed("Do", err),
		a.over(a.now().Add(c.cfg.Timeout)))}
}

// late reports whether the time of a try is over before it has begun: the process may have been suspended. Then the
// timer of ctx may not have fired yet, and only the clock knows.
func late(ctx context.Context) bool {
	at, _ := ctx.Deadline()
	return ctx.Err() != nil || !time.Now().Before(at)
}

// enough reports whether there is time for one more call.
func (a *attempt[TTx]) enough() bool {
	at, ok := a.ctx.Deadline()
	return a.ctx.Err() == nil && (!ok || time.Until(at) >= a.calls.cfg.Timeout*9/10)
}

// now returns the database's time.
func (a *attempt[TTx]) now() time.Time { return a.known.Now.Add(time.Since(a.read)) }

// takeBack records that the try had no effect. If that fails, the try stays unanswered, which is safe.
func (a *attempt[TTx]) takeBack() {
	ctx, cancel := a.detached()
	defer cancel()
	_ = a.calls.keeper.TakeBackTry(ctx, a.call.key, a.token, a.known)
}

// detached returns a ctx for what must be recorded although the publication's time is over.
func (a *attempt[TTx]) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.ctx), a.calls.cfg.Timeout)
}

func (a *attempt[TTx]) failed(what string, err error) error {
	return fmt.Errorf("calls: %s: %s: %w", a.calls.cfg.Name, what, err)
}

func (a *attempt[TTx]) wait(until time.Time) error {
	return &outboxdriver.DeferError{
		After: until.Sub(a.now()),
		Err:   &outbox.InDoubtError{Err: fmt.Errorf("calls: %s: a request may still be under way; it is looked for after Settles", a.calls.cfg.Name)},
	}
}

// over returns from when on no request of a try that ends at until can be under way, as text.
func (a *attempt[TTx]) over(until time.Time) string {
	if a.known.Until.After(until) {
		until = a.known.Until
	}
	return until.Add(a.calls.cfg.Settles + time.Second).UTC().Format(time.RFC3339)
}

// doubt says why nothing can tell whether the call has happened.
func (a *attempt[TTx]) doubt(why string) error {
	tried, until := "it was perhaps tried before the database went back", a.now().Add(a.calls.cfg.Timeout)
	if a.known.Unanswered > 0 {
		until = a.known.Until
		tried = fmt.Sprintf("it was tried at %s", a.known.First.Format(time.RFC3339))
		if a.known.Last.After(a.known.First) {
			tried += fmt.Sprintf(" and at last at %s", a.known.Last.Format(time.RFC3339))
		}
	}
	return fmt.Errorf("calls: %s: %s, %s, and Config.Find is missing. Its request may be under way until %s: look in the other system after that, and tell with txonce outbox answer",
		a.calls.cfg.Name, tried, why, a.over(until))
}

// refusedNow handles a definite refusal after tries whose outcome is not known: one of them may have succeeded.
func (a *attempt[TTx]) refusedNow(refusal error) error {
	switch quiet := a.calls.cfg.rules().quiet(a.known, a.database); {
	case a.calls.cfg.Find == nil:
		return outbox.Permanent(&outbox.InDoubtError{Err: fmt.Errorf("%w (the latest try was refused: %w)", a.doubt("an earlier try may have succeeded"), refusal)})
	case a.now().Before(quiet):
		return a.wait(quiet)
	}
	return a.ask(refusal)
}

// ask asks the other system whether the call has happened. If it has not, the call is made, or it is refused for good.
func (a *attempt[TTx]) ask(refusal error) error {
	c := a.calls
	ctx, cancel := context.WithTimeout(a.ctx, c.cfg.Timeout)
	defer cancel()
	var result Result
	var happened bool
	err := usercode.Err("Find", func() (err error) {
		result, happened, err = c.cfg.Find(ctx, a.call)
		return err
	})
	var retry *retryError
	switch {
	case errors.As(err, &retry):
		return &outbox.UnavailableError{After: retry.after, Err: &outbox.InDoubtError{Err: a.failed("Find", err)}}
	case err != nil && outbox.IsPermanent(err): // the question was refused, which says nothing of the call
		return outbox.Permanent(&outbox.InDoubtError{Err: a.failed("Find", err)})
	case err != nil:
		return &outbox.InDoubtError{Err: a.failed("Find", err)}
	case happened:
		return a.done(result)
	case refusal != nil:
		return a.refused(refusal)
	}
	return a.do(true)
}

// done settles a call that has happened.
func (a *attempt[TTx]) done(result Result) error {
	return a.settle(func(ctx context.Context, tx TTx) error {
		return usercode.Err("Done", func() error { return a.calls.cfg.Done(ctx, tx, a.call, result) })
	}, result, nil)
}

// refused settles a call that has not happened and never will, or lets it be parked.
func (a *attempt[TTx]) refused(refusal error) error {
	failed := a.calls.cfg.Failed
	if failed == nil {
		a.takeBack()
		return outbox.Permanent(a.failed("refused", refusal))
	}
	return a.settle(func(ctx context.Context, tx TTx) error {
		return usercode.Err("Failed", func() error { return failed(ctx, tx, a.call, refusal) })
	}, nil, refusal)
}

// errOvertaken ends the transaction of a refusal.
var errOvertaken = errors.New("another relay makes this call by now")

// settle claims the call's ID, runs f, and deletes the record, in one transaction. It is not cut off by the end of the
// publication, because what is known now may not be known later. A refusal settles the call only if its try is still
// the latest one: a later one may succeed.
func (a *attempt[TTx]) settle(f func(ctx context.Context, tx TTx) error, result Result, refusal error) error {
	c := a.calls
	ctx, cancel := a.detached()
	defer cancel()
	// No time: the call is settled however old it is.
	claim := dedup.Record{Key: a.call.key, Fingerprint: a.call.fingerprint, Window: c.cfg.window()}
	token := int64(0)
	if refusal != nil {
		token = a.token
	}
	err := c.cfg.Store.InTx(ctx, []dedup.Record{claim}, func(tx TTx, claims []dedup.Claim) error {
		switch claims[0].Verdict {
		case dedup.First:
			if err := f(ctx, tx); err != nil {
				return err
			}
		case dedup.Mismatch:
			return fmt.Errorf("%w: %q", ErrMismatch, a.call.ID)
		default: // another relay has settled it
			token = 0
		}
		dropped, err := c.keeper.DropCall(ctx, tx, a.call.key, token)
		if err == nil && !dropped && token != 0 {
			return errOvertaken
		}
		return err
	})
	if err == nil {
		return nil
	}
	later := c.cfg.Store.Retryable(err) || errors.Is(err, dedup.ErrInFlight) || errors.Is(err, errOvertaken)
	if refusal != nil {
		a.takeBack()
		if err = a.failed("record the refusal", err); later {
			return &outboxdriver.DeferError{After: raced, Err: err}
		}
		return err
	}
	a.keepResult(result)
	err = &outbox.HappenedError{Err: a.failed("record the result", err)}
	if later {
		return &outboxdriver.DeferError{After: raced, Err: err}
	}
	return err
}

// keepResult records that the call has happened, so that Done can run again without another call. If that fails, the
// next publication decides as after a crash.
func (a *attempt[TTx]) keepResult(result Result) {
	ctx, cancel := a.detached()
	defer cancel()
	answer := driver.Answer{Happened: true, Result: result, Fingerprint: a.call.fingerprint}
	_, _ = a.calls.keeper.AnswerCall(ctx, a.call.key, driver.AnyToken, answer)
}
