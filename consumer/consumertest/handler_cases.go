package consumertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
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

// overlap is how long the first of two copies stays in its transaction after the second has begun.
const overlap = 50 * time.Millisecond

// concurrentTwin makes one process wait before its COMMIT until another one has begun with the same message.
func concurrentTwin[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	ctx, cancel := context.WithTimeout(r.Context(), handlerPatience)
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
