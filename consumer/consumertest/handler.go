package consumertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// HandlerTest describes a handler and the database that it runs on.
type HandlerTest[TTx any] struct {
	// Store is a Store on the database. Required.
	Store dedup.Store[TTx]

	// New makes a consumer as the program does, but with store, which calls Store and simulates crashes. It is called
	// many times. Each Consumer represents another process. Required.
	New func(store dedup.Store[TTx]) (*consumer.Consumer[TTx], error)

	// Message returns message number n. The handler must succeed on it. Message is called with the same n for each
	// delivery. The business key must depend on n, and no other message may have it. Required.
	Message func(n int) *consumer.Message

	// Effects counts the committed effects of all messages, outside of the tests' transactions. Required. If a handler
	// adds to a row, such as UPDATE accounts SET balance = balance + 1, it returns the sum of these balances.
	Effects func(ctx context.Context) (int, error)

	// Each is how many of these effects one message has.
	//
	// Defaults to 1.
	Each int

	// SameRow returns message number n of ten that concern one row of the application, such as payments of one account.
	// If it is set, TestHandler delivers the ten in one batch, and finds a handler that loses some of their effects.
	// This statement does so without an error, because it updates a row only once:
	//
	//	UPDATE accounts a SET balance = a.balance + m.amount FROM unnest($1::text[], $2::int[]) AS m (id, amount) WHERE a.id = m.id
	//
	// With Config.Interleave, a handler does so that reads the row without a lock and writes a value that it computed.
	//
	// Each of these messages has Each effects. Their business keys must differ from each other and from those of
	// Message. Set Message.OrderingKey as the publisher does. Without HandleBatch and Interleave the handlers of a
	// batch run one after the other, and the test finds nothing.
	//
	// Defaults to nil: that case is left out.
	SameRow func(n int) *consumer.Message

	// Outgoing returns the IDs of the messages in the outbox, in any order, as tx sees it after the handler. With
	// pgxstore, begin a savepoint first: messages that wait for COMMIT are written then.
	//
	//	sp, err := tx.Begin(ctx)
	//	…
	//	rows, err := sp.Query(ctx, `SELECT id FROM outbox_messages`)
	//
	// If it is set, TestHandler runs the handler 100 times for one message, rolls back all runs but the last, and compares
	// the IDs of all runs. The first run is in another process than the others and has another Message.Attempt, and the
	// last is in a later second, so the case takes up to a second. IDs differ if the handler makes them of uuid.New,
	// time.Now, Message.Attempt or a counter in memory: a run of the handler that is repeated after its commit was lost
	// then sends a message that receivers take for another one. IDs that Enqueue derives depend on the
	// order of a handler's calls. A handler that enqueues in the order of a map gives the same IDs to other messages:
	// Outgoing finds that if it returns each ID together with its payload.
	//
	// Defaults to nil: that case is left out.
	Outgoing func(ctx context.Context, tx TTx) (ids []string, err error)
}

// TestHandler runs one sub-test for each thing that may happen to a message. The database may contain other data, but
// nothing else may add effects while the test runs.
func TestHandler[TTx any](t *testing.T, h HandlerTest[TTx]) {
	t.Helper()
	if err := h.complete(); err != nil {
		t.Fatal(err)
	}
	for n, c := range handlerCases(h) {
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

func handlerCases[TTx any](h HandlerTest[TTx]) []handlerCase[TTx] {
	cases := []handlerCase[TTx]{
		{"delivered twice", deliveredTwice[TTx]},
		{"delivered twice in one batch", deliveredTwiceInABatch[TTx]},
		{"crash before commit", crashBeforeCommit[TTx]},
		{"crash after commit", crashAfterCommit[TTx]},
		{"concurrent twin", concurrentTwin[TTx]},
	}
	if h.SameRow != nil {
		cases = append(cases, handlerCase[TTx]{"one row in one batch", oneRowInABatch[TTx]})
	}
	if h.Outgoing != nil {
		cases = append(cases, handlerCase[TTx]{"same outgoing messages", sameOutgoing[TTx]})
	}
	return cases
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
	c, err := r.test.New(p.store())
	if err != nil {
		r.Fatalf("HandlerTest.New: %v", err)
	}
	r.Cleanup(c.Close)
	return c, p
}

// handlerPatience is how long a message is tried again. Process alone would try for ever when the handler has lost its
// transaction, for example because it ignores the error of a statement.
const handlerPatience = 30 * time.Second

// deliver delivers the message to a process that does not crash.
func (r *handlerRun[TTx]) deliver(when string) {
	r.Helper()
	c, p := r.process(nil)
	ctx, cancel := context.WithTimeout(r.Context(), handlerPatience)
	defer cancel()
	if err := c.Process(ctx, r.test.Message(r.n)); err != nil {
		r.Fatalf("%s: Process, for up to %v: %v", when, handlerPatience, err)
	}
	p.check(r)
}
