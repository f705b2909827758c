package consumertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// HandlerTest describes a handler and the database that it runs on.
type HandlerTest[TTx any] struct {
	// Store is a Store on the database. Required.
	Store dedup.Store[TTx]

	// New makes a consumer as the program does, but with store, which calls Store and simulates crashes. It is called many
	// times. Each Consumer represents another process. Required.
	New func(store dedup.Store[TTx]) (*consumer.Consumer[TTx], error)

	// Message returns message number n. The handler must succeed on it. Message is called with the same n for each delivery. The natural key must
	// depend on n, and nothing else may use it. Required.
	Message func(n int) *consumer.Message

	// Effects counts the committed effects of all messages, outside of the tests' transactions. Required.
	Effects func(ctx context.Context) (int, error)

	// Each is how many of these effects one message has.
	//
	// Defaults to 1.
	Each int
}

// TestHandler runs one sub-test for each thing that may happen to a message. The database may contain other data, but
// nothing else may add effects while the test runs.
func TestHandler[TTx any](t *testing.T, h HandlerTest[TTx]) {
	t.Helper()
	if err := h.complete(); err != nil {
		t.Fatal(err)
	}
	for n, c := range handlerCases[TTx]() {
		t.Run(c.name, func(t *testing.T) { c.run(&handlerRun[TTx]{TB: t, test: h, n: n}) })
	}
}

func (h *HandlerTest[TTx]) complete() error {
	switch {
	case h.Store == nil:
		return errors.New("consumertest: HandlerTest.Store is required")
	case h.New == nil:
		return errors.New("consumertest: HandlerTest.New is required")
	case h.Message == nil:
		return errors.New("consumertest: HandlerTest.Message is required")
	case h.Effects == nil:
		return errors.New("consumertest: HandlerTest.Effects is required")
	case h.Each < 0:
		return fmt.Errorf("consumertest: HandlerTest.Each is %d: want 1 or more", h.Each)
	}
	if h.Each == 0 {
		h.Each = 1
	}
	return nil
}

type handlerCase[TTx any] struct {
	name string
	run  func(r *handlerRun[TTx])
}

func handlerCases[TTx any]() []handlerCase[TTx] {
	return []handlerCase[TTx]{
		{"delivered twice", deliveredTwice[TTx]},
		{"delivered twice in one batch", deliveredTwiceInABatch[TTx]},
		{"crash before commit", crashBeforeCommit[TTx]},
		{"crash after commit", crashAfterCommit[TTx]},
		{"concurrent twin", concurrentTwin[TTx]},
	}
}

// handlerRun is one case.
type handlerRun[TTx any] struct {
	testing.TB
	test   HandlerTest[TTx]
	n      int
	before int // effects
}

func (r *handlerRun[TTx]) effects() int {
	r.Helper()
	n, err := r.test.Effects(r.Context())
	if err != nil {
		r.Fatalf("HandlerTest.Effects: %v", err)
	}
	return n
}

func (r *handlerRun[TTx]) want(n int, when, hint string) {
	r.Helper()
	if got := r.effects() - r.before; got != n {
		r.Fatalf("%s: %d effects, want %d: %s", when, got, n, hint)
	}
}

// process returns a consumer that represents another process. pass runs its transactions; nil: they run as usual.
func (r *handlerRun[TTx]) process(pass func(context.Context, inTx) error) (*consumer.Consumer[TTx], *passing[TTx]) {
	r.Helper()
	p := &passing[TTx]{Store: r.test.Store, pass: pass}
	store := dedup.Store[TTx](p)
	if lot, ok := r.test.Store.(consumer.ParkingLot[TTx]); ok {
		store = struct {
			*passing[TTx]
			consumer.ParkingLot[TTx]
		}{p, lot}
	}
	c, err := r.test.New(store)
	if err != nil {
		r.Fatalf("HandlerTest.New: %v", err)
	}
	return c, p
}

// deliver delivers the message to a process that does not crash.
func (r *handlerRun[TTx]) deliver(when string) {
	r.Helper()
	c, p := r.process(nil)
	if err := c.Process(r.Context(), r.test.Message(r.n)); err != nil {
		r.Fatalf("%s: Process: %v", when, err)
	}
	p.check(r)
}

func deliveredTwice[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	r.deliver("first delivery")
	r.want(r.test.Each, "after the first delivery", "the handler must have its effects through the transaction it is given")
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
	if retry, ok := errors.AsType[*consumer.RetryError](err); !ok || !retry.Uncounted {
		r.Fatalf("the delivery during which the process crashes: err = %v, want an uncounted *RetryError; "+
			"does HandlerTest.New use the store that it is given?", err)
	}
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
