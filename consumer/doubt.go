package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/observe"
)

// doubt says why the outcome of one message is unknown. The message was claimed by a transaction that a handler ended,
// which may have been its own handler or that of another message in the batch. The claim may be committed although the
// message's effects are not, so a later claim that finds it proves nothing. The message is in doubt until it is parked,
// or until a new claim shows that the old one was not committed.
//
// Other processes do not know these messages: if this process crashes before it has parked them, they are duplicates
// there.
type doubt struct {
	err  *unknownError
	sure bool // a handler has ended the transaction; otherwise it only may have
	// its own handler ended the transaction: its effects may be committed without a claim, so it must not run again
	ownEffect bool

	// asks whether the transaction is committed; nil: that cannot be found out
	committed func(ctx context.Context, tx any) (bool, error)
}

// mayBeCommitted reports whether the claim that tx has found may be the one of the transaction in doubt.
func (d doubt) mayBeCommitted(ctx context.Context, tx any) (bool, error) {
	if d.committed == nil {
		return true, nil
	}
	return d.committed(ctx, tx)
}

// unknownError is the error of a dead letter with observe.CauseUnknown. It hides the wrapped errors, except ErrTxEnded,
// so that a database error among them does not cause another attempt.
type unknownError struct {
	err  error
	sure bool // true: the handler ended the transaction; false: the server did not tell whether it was committed
	// the key of the other message whose handler ended the transaction before this message's handler was called; empty:
	// none
	by string
}

func (e *unknownError) Error() string {
	const todo = "; look for its effects: Discard the letter if they are complete, or Replay it AsNew"
	if e.by != "" {
		return fmt.Sprintf("outcome unknown: the handler of message %q, in the same batch, ended the transaction that claimed this message too, "+
			"before the handler of this message was called; it has no effects, unless another process has handled a copy"+todo+": %v", e.by, e.err)
	}
	what := "the server does not tell whether the transaction that claimed the message was committed"
	if e.sure {
		what = "the handler ended the transaction that claimed the message, so its effects may be committed or not"
	}
	return "outcome unknown: " + what + todo + ": " + e.err.Error()
}

func (e *unknownError) Is(target error) bool { return target == dedup.ErrTxEnded }

// findDoubts remembers the messages that are in doubt after the transaction failed with f: it may be committed all the
// same, without all of the handlers' effects. It returns what is known then, and changes a.err accordingly.
//
// The suspects are the messages whose handlers can have ended the transaction. If it was verified after each handler,
// that is only the last one. Of interleaved handlers, it is the one that Interleave has named; others may have done
// a part of their work. Also if they had returned, Interleave may still have had their outbox messages, unless they are
// a.complete.
func (a *attempt[TTx]) findDoubts(f decide.Failure) decide.Failure {
	suspects, finished := a.ran, a.ran
	known := a.verifies()
	switch {
	case a.interleaved && len(a.culprits) > 0:
		suspects, finished = a.culprits, slices.Concat(a.complete, a.culprits)
	case a.interleaved:
		known = false
	case known && len(a.ran) > 0:
		suspects = a.ran[len(a.ran)-1:]
	}
	add, sure := decide.Doubts(f, a.tried())
	if f.Ended && len(a.ran) > 0 && (known || sure) {
		a.culprits = suspects
	}
	if !add {
		return f
	}
	a.addDoubts(suspects, finished, sure)
	if !sure { // probably the database's fault
		return f
	}
	a.err = &unknownError{err: a.err, sure: true}
	refused := a.item(0).refused
	if len(a.todo) == 1 && refused != nil {
		a.err = refused
		return f.OutcomeUnknown(true)
	}
	return f.OutcomeUnknown(false)
}

// addDoubts remembers the messages that the transaction claimed before it failed. sure says that the handlers of
// suspects ended the transaction: those messages and their copies are refused from now on.
//
// The messages in finished that are not suspects are not in doubt. The transaction was verified after their handlers,
// so their effects and their claims are committed together or not at all, and a new claim shows which.
func (a *attempt[TTx]) addDoubts(suspects, finished []int, sure bool) {
	var committed func(context.Context, any) (bool, error)
	if inDoubt, ok := errors.AsType[*dedup.InDoubtError](a.err); ok {
		committed = inDoubt.Committed
	}
	for j, ans := range a.answers {
		guilty := slices.Contains(suspects, j)
		if !ans.run || slices.Contains(finished, j) && !guilty {
			continue
		}
		err := &unknownError{err: a.err, sure: sure}
		if !guilty && len(suspects) == 1 && !a.interleaved {
			// interleaved, the handler may have done a part of its work
			err.by = a.item(suspects[0]).rec.Key.ID
		}
		hash := a.item(j).hash
		a.b.c.memory.addDoubt(hash, doubt{err: err, sure: sure, ownEffect: sure && guilty, committed: committed})
		if !sure || !guilty {
			continue
		}
		for i := range a.b.items {
			if it := &a.b.items[i]; it.hash == hash && it.rec.Key.ID != "" {
				it.refused = a.b.c.memory.refuses(it)
			}
		}
	}
}

// refuses returns why an item must not run because of an earlier attempt; nil: it may run.
func (m *memory) refuses(it *item) error {
	if it.rec.Key.ID == "" {
		return nil
	}
	if d, ok := m.doubt(it.hash); ok && d.ownEffect {
		return refuse(observe.CauseUnknown, d.err)
	}
	return nil
}

// inDoubt reports whether the outcome of an item is unknown.
func (m *memory) inDoubt(it *item) bool {
	if it.rec.Key.ID == "" {
		return false
	}
	_, ok := m.doubt(it.hash)
	return ok
}

const (
	// parkDoubtsWithin is how long after the end of ctx a pass still tries to park messages in doubt.
	parkDoubtsWithin = 10 * time.Second

	// parkDoubtsLogged is how often a pass that cannot park a message in doubt logs why it waits.
	parkDoubtsLogged = time.Minute

	// These are the shortest and the longest wait after a failed attempt to park a message in doubt.
	parkDoubtsWaitMin = 10 * time.Millisecond
	parkDoubtsWaitMax = time.Second
)

// parkDoubts parks the messages in doubt that the pass would otherwise give back to the broker. Another process may get
// them next, and would take them for duplicates. It tries until parkDoubtsWithin after the end of ctx, because the next
// attempt may get a connection that works, and because no other process can park them while the database is away.
//
// It goes on while another transaction holds the key. That may be the transaction in doubt, which the server has not
// ended yet. On MariaDB it may also be another consumer's transaction that found the committed claim and has locked its
// row.
//
// A message whose claim turns out not to be committed is given back to the broker to be tried again. This counts as an
// attempt if its handler had failed in a transaction of its own; without attempts left, the message is parked for that
// failure.
func (b *batch[TTx]) parkDoubts(ctx context.Context) {
	var waiting []int
	for i := range b.items {
		if b.errs[i] != nil && b.c.memory.inDoubt(&b.items[i]) {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := outlive(ctx, parkDoubtsWithin)
	defer cancel()
	logged := time.Now()
	for failed := 0; len(waiting) > 0; {
		i := waiting[0]
		waiting = waiting[1:]
		it := &b.items[i]
		d, ok := b.c.memory.doubt(it.hash)
		if !ok { // a copy of it is parked
			continue
		}
		b.errs[i] = nil
		b.settle(b.claimWait.limited(ctx), i, 0, ofLetters,
			decide.Verdict{Do: decide.Park, Cause: observe.CauseUnknown}, d.err)
		if errors.Is(b.errs[i], dedup.ErrInFlight) {
			b.claimWait.waited()
		}
		if b.errs[i] == nil || b.c.letters.lot == nil || !b.c.memory.inDoubt(it) {
			failed = 0
			continue
		}
		waiting = append(waiting, i)
		failed++
		if time.Since(logged) >= parkDoubtsLogged {
			logged = time.Now()
			b.c.cfg.Logger.WarnContext(ctx, "a message whose outcome is unknown cannot be parked yet; its batch waits, because another process would take it for a duplicate",
				append(it.attrs(), "messages", len(waiting), "error", b.errs[i])...)
		}
		if await.Sleep(ctx, min(max(b.c.cfg.backoff(failed), parkDoubtsWaitMin), parkDoubtsWaitMax)) != nil {
			break
		}
	}
	for _, i := range waiting {
		it := &b.items[i]
		b.c.cfg.Logger.ErrorContext(ctx, "a message whose outcome is unknown goes back to the broker unparked: another process may take it for a duplicate; look for its effects",
			append(it.attrs(), "error", b.errs[i])...)
	}
}

// outlive returns a context that ends d after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if await.Sleep(longer, d) == nil {
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}
