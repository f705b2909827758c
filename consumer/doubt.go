package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
)

// doubts remembers messages that were claimed by a transaction which their handler, or another message's, ended. Such a claim
// may be committed though the message's effects are not: a new claim that finds it proves nothing. A message is remembered
// until it is parked, or a new claim shows that the old one was not committed and its effects are. The zero value is ready,
// and safe for concurrent use.
//
// Other processes do not know of it: when this one crashes before it has parked the messages, they are duplicates there.
type doubts struct {
	mu  sync.Mutex
	all map[dedup.KeyHash]doubt
}

// doubt is why the outcome of one message is unknown.
type doubt struct {
	cause *unknownError
	sure  bool // a handler has ended the transaction; otherwise one may have
	ran   bool // its own handler ended the transaction, so that its effects may stand without a claim: it must not run again

	committed func(ctx context.Context, tx any) (bool, error) // asks whether the transaction that ended is; nil: nobody can tell
}

// stands reports whether the claim that tx has found may be the one of the transaction that ended.
func (d doubt) stands(ctx context.Context, tx any) (bool, error) {
	if d.committed == nil {
		return true, nil
	}
	return d.committed(ctx, tx)
}

// unknownError is the cause of a letter with ReasonUnknown. It hides the errors that it began with, except ErrTxEnded: a
// database's error among them must not have the message tried again.
type unknownError struct {
	err error
	by  string // the key of another message, whose handler ended the transaction before this one's was called; empty: it was not another one's
}

func (e *unknownError) Error() string {
	const todo = "; look for its effects: Discard the letter where they are complete, or Replay it AsNew"
	if e.by != "" {
		return fmt.Sprintf("outcome unknown: the handler of message %q, in the same batch, ended the transaction that claimed this message too, "+
			"before the handler of this one was called; it has no effects, unless another process has handled a copy"+todo+": %v", e.by, e.err)
	}
	return "outcome unknown: the handler ended the transaction that claimed the message, so that nobody knows whether its effects are committed" + todo + ": " + e.err.Error()
}

func (e *unknownError) Is(target error) bool { return target == dedup.ErrTxEnded }

func (d *doubts) add(key dedup.KeyHash, more doubt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[dedup.KeyHash]doubt{}
	}
	if before, found := d.all[key]; found && before.sure { // keep what is known about the earlier transaction
		more.ran = more.ran || before.ran
		more.committed = nil // there are two transactions to ask about
	}
	d.all[key] = more
}

func (d *doubts) of(key dedup.KeyHash) (doubt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.all[key]
	return found, ok
}

func (d *doubts) over(key dedup.KeyHash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}

// doubt remembers what the transaction of answers has claimed, after it failed with err. Both ran and culprits are places
// in answers. sure says that the handlers of culprits ended the transaction: those messages and their copies are refused from now on.
// The transaction was verified after each other handler that ran. So the effects of those messages were committed with their
// claims or not at all, and a new claim tells which: nothing about them is in doubt.
func (b *batch[TTx]) doubt(answers []answer, ran, culprits []int, sure bool, err error) {
	var committed func(context.Context, any) (bool, error)
	if inDoubt, ok := errors.AsType[*dedup.InDoubtError](err); ok {
		committed = inDoubt.Committed
	}
	for j, ans := range answers {
		guilty := slices.Contains(culprits, j)
		if ans.verdict != dedup.First || slices.Contains(ran, j) && !guilty {
			continue
		}
		cause := &unknownError{err: err}
		if !guilty && len(culprits) == 1 {
			cause.by = answers[culprits[0]].rec.Key.ID
		}
		b.doubts.add(ans.derived, doubt{cause: cause, sure: sure, ran: sure && guilty, committed: committed})
		if !sure || !guilty {
			continue
		}
		for i := range b.items {
			if it := &b.items[i]; it.derived == ans.derived && it.rec.Key.ID != "" {
				it.refused = b.unknown(it)
			}
		}
	}
}

// unknown is why an item must not run because of what became of an earlier attempt; nil: it may.
func (c *Consumer[TTx]) unknown(it *item) error {
	if it.rec.Key.ID == "" {
		return nil
	}
	if d, ok := c.doubts.of(it.derived); ok && d.ran {
		return refuse(ReasonUnknown, d.cause)
	}
	return nil
}

// inDoubt reports that the outcome of an item is unknown.
func (c *Consumer[TTx]) inDoubt(it *item) bool {
	if it.rec.Key.ID == "" {
		return false
	}
	_, ok := c.doubts.of(it.derived)
	return ok
}

// settleWithin is how long after the end of ctx a pass still tries to park messages in doubt.
const settleWithin = 10 * time.Second

// settleLogged is how often a pass that cannot park a message in doubt logs why it waits.
const settleLogged = time.Minute

// settlePauseMin and settlePauseMax bound the wait after an attempt to park a message in doubt that failed.
const (
	settlePauseMin = 10 * time.Millisecond
	settlePauseMax = time.Second
)

// settleDoubts parks the messages in doubt that the pass would give back to the broker: another process, which may get them next,
// would take them for duplicates. It tries until ctx ends and settleWithin longer, because the next attempt may find a connection that
// works, and because no other process can park them while the database is away.
//
// It goes on also when another transaction holds a key. That may be the transaction in doubt, which the server has not ended yet. On
// MariaDB it may be a transaction of another consumer that found the committed claim and has locked its row.
//
// A message whose claim turns out not to be committed is given back to the broker to be tried again; no attempt is counted.
func (b *batch[TTx]) settleDoubts(ctx context.Context) {
	var waiting []int
	for i := range b.items {
		if b.errs[i] != nil && b.inDoubt(&b.items[i]) {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := outlive(ctx, settleWithin)
	defer cancel()
	logged := time.Now()
	for failed := 0; len(waiting) > 0; {
		i := waiting[0]
		waiting = waiting[1:]
		it := &b.items[i]
		d, ok := b.doubts.of(it.derived)
		if !ok { // a copy of it is parked
			continue
		}
		b.errs[i] = nil
		b.giveUp(b.wait.limited(ctx), i, ReasonUnknown, d.cause)
		if errors.Is(b.errs[i], dedup.ErrInFlight) {
			b.wait.waited()
		}
		if b.errs[i] == nil || b.lot == nil || !b.inDoubt(it) {
			failed = 0
			continue
		}
		waiting = append(waiting, i)
		failed++
		if time.Since(logged) >= settleLogged {
			logged = time.Now()
			b.cfg.Logger.WarnContext(ctx, "a message whose outcome is unknown cannot be parked yet; its batch waits, because another process would take it for a duplicate",
				append(it.attrs(), "messages", len(waiting), "error", b.errs[i])...)
		}
		if pauseFor(ctx, min(max(b.cfg.wait(failed), settlePauseMin), settlePauseMax)) != nil {
			break
		}
	}
	for _, i := range waiting {
		it := &b.items[i]
		b.cfg.Logger.ErrorContext(ctx, "a message whose outcome is unknown goes back to the broker unparked: another process may take it for a duplicate; look for its effects",
			append(it.attrs(), "error", b.errs[i])...)
	}
}

// outlive returns a context that ends that long after ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(by):
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}

// pauseFor returns ctx's error if it ends first.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
