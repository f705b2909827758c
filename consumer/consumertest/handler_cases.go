package consumertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

func deliveredTwice[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	r.deliver("first delivery")
	r.want(r.test.Each, "after the first delivery",
		"the handler must have its effects through the transaction it is given")
	r.deliver("second delivery")
	r.want(r.test.Each, "after the second delivery", "is the key the same on every delivery?")
}

func deliveredTwiceInABatch[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	c, p := r.process(nil)
	for i, err := range c.ProcessBatch(r.Context(), []*consumer.Message{r.test.Message(r.n), r.test.Message(r.n)}) {
		if err != nil {
			r.Fatalf("delivery %d: %v", i+1, err)
		}
	}
	p.check(r)
	r.want(r.test.Each, "after the batch", "is the key the same on every delivery?")
}

// sameRow is how many messages of one row are delivered in one batch. With Config.Interleave, two of them must read the
// row at the same time.
const sameRow = 10

func oneRowInABatch[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	c, p := r.process(nil)
	var msgs []*consumer.Message
	for n := range sameRow {
		msgs = append(msgs, r.test.SameRow(n))
	}
	for i, err := range c.ProcessBatch(r.Context(), msgs) {
		if err != nil {
			r.Fatalf("message %d: %v", i, err)
		}
	}
	p.check(r)
	r.want(sameRow*r.test.Each, fmt.Sprintf("after a batch of %d messages of one row", sameRow),
		"the handler loses effects of messages that concern one row, or SameRow returns messages with the same key")
}

// errCrash represents the end of the process. It is Retryable, so the consumer asks for another delivery.
var errCrash = errors.New("consumertest: the process has crashed")

func crashBeforeCommit[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	crashed := false
	r.crash(func(_ context.Context, tx inTx) error {
		if crashed {
			return errCrash
		}
		return tx(func() error { crashed = true; return errCrash })
	})
	if !crashed {
		r.Fatal("the handler did not get as far as the commit")
	}
	r.want(0, "after a crash before the commit", "the handler writes outside of its transaction")
	r.deliver("delivery after the crash")
	r.want(r.test.Each, "after the next delivery", "the claim was not rolled back together with the effects")
}

func crashAfterCommit[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	crashed := false
	r.crash(func(_ context.Context, tx inTx) error {
		if crashed {
			return errCrash
		}
		err := tx(nil)
		if err == nil {
			crashed, err = true, errCrash
		}
		return err
	})
	if !crashed {
		r.Fatal("the handler did not get as far as the commit")
	}
	r.want(r.test.Each, "after a crash behind the commit", "the commit did not keep the effects")
	r.deliver("delivery after the crash")
	r.want(r.test.Each, "after the next delivery", "the claim was not committed together with the effects")
}

// crash delivers the message to a process that crashes: the delivery must not be acknowledged.
func (r *handlerRun[TTx]) crash(pass func(context.Context, inTx) error) {
	r.Helper()
	c, p := r.process(pass)
	err := c.ProcessBatch(r.Context(), []*consumer.Message{r.test.Message(r.n)})[0]
	p.check(r)
	if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Held {
		r.Fatalf("the delivery during which the process crashes: err = %v, want an uncounted *RetryError; "+
			"does HandlerTest.New use the store that it is given?", err)
	}
}

// sameOutgoing runs the handler twice for one message: the first time its transaction rolls back, as if the process
// crashed before COMMIT.
func sameOutgoing[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	var others []string // what was there before
	if err := r.test.Store.InTx(r.Context(), nil, func(tx TTx, _ []dedup.Claim) (err error) {
		others, err = r.test.Outgoing(r.Context(), tx)
		return err
	}); err != nil {
		r.Fatalf("HandlerTest.Outgoing: %v", err)
	}
	var runs [2][]string
	for i := range runs {
		ran := false
		c, p := r.process(func(_ context.Context, tx inTx) error {
			if i == 0 && ran {
				return errCrash
			}
			return tx(func() error {
				if ran = true; i == 0 {
					return errCrash
				}
				return nil
			})
		})
		var failed error
		p.handled = func(ctx context.Context, tx TTx) error {
			runs[i], failed = r.test.Outgoing(ctx, tx)
			return failed
		}
		err := c.ProcessBatch(r.Context(), []*consumer.Message{r.test.Message(r.n)})[0]
		p.check(r)
		switch {
		case failed != nil:
			r.Fatalf("HandlerTest.Outgoing: %v", failed)
		case !ran:
			r.Fatalf("run %d: the handler did not get as far as the commit (err = %v)", i+1, err)
		case i == 1 && err != nil:
			r.Fatalf("run %d: %v", i+1, err)
		}
		runs[i] = without(runs[i], others)
		slices.Sort(runs[i])
	}
	if len(runs[0]) == 0 && len(runs[1]) == 0 {
		r.Fatal("HandlerTest.Outgoing finds no new message: does the handler enqueue one for HandlerTest.Message? " +
			"With pgxstore, Outgoing must begin a savepoint first.")
	}
	if !slices.Equal(runs[0], runs[1]) {
		r.Fatalf("the first run of the handler enqueues other messages than the second: %q and %q; does it make IDs "+
			"with uuid.New or time.Now, or enqueue in the order of a map?", without(runs[0], runs[1]), without(runs[1], runs[0]))
	}
	r.want(r.test.Each, "after the second run", "the handler must have its effects through the transaction it is given")
}

func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// overlap is how long the first of two copies stays in its transaction after the second has begun.
const overlap = 50 * time.Millisecond

// concurrentTwin makes one process wait before its COMMIT until another one has begun with the same message.
func concurrentTwin[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	ctx, cancel := context.WithTimeout(r.Context(), subscriberPatience)
	defer cancel()
	handled, begun := make(chan struct{}), make(chan struct{})
	isHandled, hasBegun := sync.OnceFunc(func() { close(handled) }), sync.OnceFunc(func() { close(begun) })
	first, p1 := r.process(func(ctx context.Context, tx inTx) error {
		return tx(func() error {
			isHandled()
			select {
			case <-begun:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-time.After(overlap):
			case <-ctx.Done():
			}
			return nil
		})
	})
	second, p2 := r.process(func(_ context.Context, tx inTx) error {
		hasBegun()
		return tx(nil)
	})
	done := make(chan error, 1)
	go func() { done <- first.Process(ctx, r.test.Message(r.n)) }()
	var err1 error
	select {
	case <-handled:
	case err1 = <-done:
		p1.check(r)
		r.Fatalf("the first one did not get as far as the commit (err = %v): does HandlerTest.New use the store that it is given?", err1)
	}
	err2 := second.Process(ctx, r.test.Message(r.n))
	err1 = <-done
	p1.check(r)
	p2.check(r)
	if err1 != nil || err2 != nil {
		r.Fatalf("two copies at once: %v, %v; want both acknowledged", err1, err2)
	}
	r.want(r.test.Each, "after two copies at once", "the second one did not wait for the first one's claim")
}
