package consumertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/usercode"
)

// outgoingRuns is how often the handler runs. A map with two elements has the same order in seven of eight runs: of the
// handlers that depend on it, 20 runs missed 7 in 100.
const outgoingRuns = 100

// sameOutgoing runs the handler many times for one message. The first run is in a process of its own, the others are in
// another one, and the last is in a later second. All but the last are rolled back.
func sameOutgoing[TTx any](r *handlerRun[TTx]) {
	r.before = r.effects()
	var others []string // what was there before
	if err := r.test.Store.InTx(r.Context(), nil, func(tx TTx, _ []dedup.Claim) (err error) {
		others, err = r.test.outgoing(r.Context(), tx)
		return err
	}); err != nil {
		r.Fatal(err)
	}
	first := runOutgoing(r, newOutgoingProcess(r), 1, false)
	second, again := time.Now().Unix(), newOutgoingProcess(r)
	for n := 2; n < outgoingRuns; n++ {
		compareOutgoing(r, others, first, runOutgoing(r, again, n, false), n)
	}
	for time.Now().Unix() == second { // so that IDs made of the time in seconds differ
		<-time.After(10 * time.Millisecond)
	}
	compareOutgoing(r, others, first, runOutgoing(r, again, outgoingRuns, true), outgoingRuns)
	r.want(r.test.Each, "after the last run", "the handler must have its effects through the transaction it is given")
}

// outgoing calls HandlerTest.Outgoing.
func (h *HandlerTest[TTx]) outgoing(ctx context.Context, tx TTx) (ids []string, err error) {
	if err := usercode.Err("HandlerTest.Outgoing", func() (err error) {
		if ids, err = h.Outgoing(ctx, tx); err != nil {
			return fmt.Errorf("HandlerTest.Outgoing: %w", err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if slices.Contains(ids, "") {
		return nil, fmt.Errorf("HandlerTest.Outgoing returns an empty ID among %q: it must return the ID that each message "+
			"has in the outbox", ids)
	}
	return slices.Sorted(slices.Values(ids)), nil
}

// outgoingProcess is a process that runs the handler.
type outgoingProcess[TTx any] struct {
	consumer *consumer.Consumer[TTx]
	*passing[TTx]

	cancel func() // ends the ctx of a run that is rolled back; nil: the run commits
	ran    bool
	ids    []string
	err    error // of HandlerTest.Outgoing
}

func newOutgoingProcess[TTx any](r *handlerRun[TTx]) *outgoingProcess[TTx] {
	r.Helper()
	o := &outgoingProcess[TTx]{}
	o.consumer, o.passing = r.process(func(ctx context.Context, tx inTx) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return tx(func() error {
			if o.cancel == nil {
				return nil
			}
			o.cancel() // as at the end of a process: the consumer does not take the database for broken, and wait
			return ctx.Err()
		})
	})
	o.handled = func(ctx context.Context, tx TTx) error {
		o.ran = true
		o.ids, o.err = r.test.outgoing(ctx, tx)
		return o.err
	}
	return o
}

// runOutgoing returns the messages in the outbox after run n of the handler.
func runOutgoing[TTx any](r *handlerRun[TTx], o *outgoingProcess[TTx], n int, commit bool) []string {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if o.ran, o.cancel = false, cancel; commit {
		o.cancel = nil
	}
	msg := r.test.Message(r.n)
	msg.Attempt = max(msg.Attempt, 1)
	if n > 1 { // only 1 more: many attempts that nobody remembers are those of a message that ends its processes
		msg.Attempt++
	}
	err := o.consumer.ProcessBatch(ctx, []*consumer.Message{msg})[0]
	switch failed := o.failure(); {
	case failed != nil && !errors.Is(failed, context.Canceled):
		r.Fatalf("run %d of the handler for one message failed, though it must succeed: %v", n, failed)
	case o.err != nil:
		r.Fatal(o.err)
	case !o.ran:
		r.Fatalf("run %d: the handler did not get as far as the commit (err = %v): does HandlerTest.New use the store that "+
			"it is given, and does HandlerTest.Message return a message that was never handled?", n, err)
	case commit && err != nil:
		r.Fatalf("run %d: %v", n, err)
	}
	return o.ids
}

// compareOutgoing fails if run n of the handler has left other messages than the first.
func compareOutgoing[TTx any](r *handlerRun[TTx], others, first, now []string, n int) {
	r.Helper()
	isOther := func(id string) bool { return slices.Contains(others, id) }
	first, now = slices.DeleteFunc(slices.Clone(first), isOther), slices.DeleteFunc(slices.Clone(now), isOther)
	if len(first) == 0 && len(now) == 0 {
		r.Fatal("HandlerTest.Outgoing finds no new message. Does the handler enqueue one for HandlerTest.Message? With " +
			"pgxstore, Outgoing must begin a savepoint first. Does Outgoing return what all messages have, such as a topic?")
	}
	if !slices.Equal(first, now) {
		r.Fatalf("two runs of the handler for one message enqueue different messages. Only run 1 has %q, only run %d has %q. "+
			"When a run is repeated because the answer of its COMMIT was lost, receivers take its message for a new one. "+
			"Make each ID of what the message says, or leave it empty, and enqueue in a fixed order. uuid.New, time.Now, "+
			"Message.Attempt, counters in memory, and the order of maps and goroutines differ between runs",
			minus(first, now), n, minus(now, first))
	}
}

// minus returns what all has more often than others. Both are sorted.
func minus(all, others []string) (more []string) {
	others = slices.Clone(others)
	for _, s := range all {
		if at := slices.Index(others, s); at >= 0 {
			others = slices.Delete(others, at, at+1)
			continue
		}
		more = append(more, s)
	}
	return more
}
