package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// judge is a testing.TB whose failures say which hazard the broken rule stands for. Fatal and Fatalf belong into the
// test's own goroutine.
type judge struct {
	testing.TB
	hazard string
}

func (j judge) Errorf(format string, args ...any) {
	j.Helper()
	j.TB.Errorf("broken rule (%s): "+format, append([]any{j.hazard}, args...)...)
}

func (j judge) Fatalf(format string, args ...any) {
	j.Helper()
	j.TB.Fatalf("broken rule (%s): "+format, append([]any{j.hazard}, args...)...)
}

// env is what one case works with: an outbox of its own.
type env[TTx any] struct {
	judge
	Outbox[TTx]
	t   *testing.T // for the harness
	ttl time.Duration
	ctx context.Context
}

// limit bounds each wait of the suite, also on busy machines.
var limit = 5 * time.Minute

// newEnv makes the outbox of a case. Complaints go to tb.
func newEnv[TTx any](t *testing.T, tb testing.TB, h Harness[TTx], c storeCase[TTx]) *env[TTx] {
	tb.Helper()
	e := &env[TTx]{judge: judge{tb, c.hazard}, Outbox: h.New(t, c.opts), t: t, ttl: h.TTL}
	if e.ttl == 0 {
		e.ttl = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	e.ctx = ctx
	return e
}

// hook fails the case when the harness has no hook for it, and no reason in DoesNotApply.
func (j judge) hook(name string, missing bool) {
	j.Helper()
	if missing {
		j.TB.Fatalf("the harness has no %s: bring it, or say in DoesNotApply why this case cannot exist", name)
	}
}

const (
	topic = "outboxtest"
	many  = 10_000 // more than any case has
)

// message has a payload and a header of its own.
func message(id, key string) outbox.Message {
	return outbox.Message{
		ID: id, Topic: topic, OrderingKey: key, Payload: []byte("payload of " + id),
		Headers: map[string]string{"id": id},
	}
}

// series are messages of one key, with numbered IDs.
func series(key string, n int) (msgs []outbox.Message) {
	for i := range n {
		msgs = append(msgs, message(fmt.Sprintf("%s-%d", key, i+1), key))
	}
	return msgs
}

// keysInShards returns n keys of n different shards of so many.
func keysInShards(n, shards int) (keys []string) {
	taken := map[int]bool{}
	for i := 0; len(keys) < min(n, shards); i++ {
		key := fmt.Sprintf("key%d", i)
		if s := driver.Shard(&outbox.Message{OrderingKey: key}, shards); !taken[s] {
			taken[s] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// inTx runs a transaction, again while its error is Retryable.
func (e *env[TTx]) inTx(fn func(tx TTx) error) error {
	return e.again(func() error { return e.InTx(e.ctx, fn) })
}

// again repeats do while its error is Retryable.
func (e *env[TTx]) again(do func() error) error {
	for {
		err := do()
		if err == nil || e.Retryable == nil || !e.Retryable(err) || e.ctx.Err() != nil {
			return err
		}
		pause(e.ctx)
	}
}

// enqueue commits msgs in one transaction and one call.
func (e *env[TTx]) enqueue(msgs ...outbox.Message) {
	e.Helper()
	if err := e.inTx(func(tx TTx) error { return e.Writer.Enqueue(e.ctx, tx, msgs...) }); err != nil {
		e.Fatalf("enqueue %d messages and commit: %v", len(msgs), err)
	}
}

// pause waits between two checks for an expected event.
func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stats fails the case when Stats fails.
func (e *env[TTx]) stats() outbox.Stats {
	e.Helper()
	st, err := e.Operations.Stats(e.ctx)
	if err != nil {
		e.Fatalf("Stats: %v", err)
	}
	return st
}

// parked lists everything that is parked.
func (e *env[TTx]) parked() []outbox.ParkedMessage {
	e.Helper()
	list, err := e.Operations.Parked(e.ctx, outbox.ParkedFilter{Limit: many})
	if err != nil {
		e.Fatalf("Parked: %v", err)
	}
	return list
}

// opened is a transaction that the case holds open.
type opened[TTx any] struct {
	e     *env[TTx]
	steps chan func(TTx) (end bool, err error)
	err   chan error // of the last step
	ended chan error
	over  bool
}

// errUndo rolls back.
var errUndo = errors.New("outboxtest: roll back")

// begin opens a transaction that ends with commit or rollback, at the latest with the case.
func (e *env[TTx]) begin() *opened[TTx] {
	e.Helper()
	o := &opened[TTx]{
		e: e, steps: make(chan func(TTx) (bool, error)), err: make(chan error),
		ended: make(chan error, 1),
	}
	begun := make(chan struct{}, 1)
	go func() {
		o.ended <- e.InTx(e.ctx, func(tx TTx) error {
			begun <- struct{}{}
			for step := range o.steps {
				end, err := step(tx)
				if end {
					return err
				}
				o.err <- err
			}
			return errUndo
		})
	}()
	select {
	case <-begun:
	case err := <-o.ended:
		e.Fatalf("begin a transaction: %v", err)
	}
	e.Cleanup(func() {
		if close(o.steps); !o.over {
			<-o.ended //nolint:errcheck // it was rolled back, or the case has ended
		}
	})
	return o
}

// enqueue is one call of Enqueue.
func (o *opened[TTx]) enqueue(msgs ...outbox.Message) {
	o.e.Helper()
	o.do(func(tx TTx) error { return o.e.Writer.Enqueue(o.e.ctx, tx, msgs...) })
}

// do runs fn in the transaction.
func (o *opened[TTx]) do(fn func(tx TTx) error) {
	o.e.Helper()
	o.steps <- func(tx TTx) (bool, error) { return false, fn(tx) }
	if err := <-o.err; err != nil {
		o.e.Fatalf("in an open transaction: %v", err)
	}
}

func (o *opened[TTx]) commit() {
	o.e.Helper()
	if err := o.end(nil); err != nil {
		o.e.Fatalf("commit: %v", err)
	}
}

func (o *opened[TTx]) rollback() {
	o.e.Helper()
	if err := o.end(errUndo); !errors.Is(err, errUndo) {
		o.e.Fatalf("rollback: %v", err)
	}
}

func (o *opened[TTx]) end(with error) error {
	o.over = true
	o.steps <- func(TTx) (bool, error) { return true, with }
	return <-o.ended
}

// ids of messages, for failures.
func ids(leased []driver.Leased) []string {
	list := make([]string, len(leased))
	for i, l := range leased {
		list[i] = l.ID
	}
	return list
}

func idsOf(msgs []outbox.Message) []string {
	list := make([]string, len(msgs))
	for i, m := range msgs {
		list[i] = m.ID
	}
	return list
}

// few formats a long list by its first and last elements.
func few(list []string) string {
	if len(list) > 12 {
		return fmt.Sprintf("%d: %s … %s", len(list), strings.Join(list[:6], " "), strings.Join(list[len(list)-3:], " "))
	}
	return fmt.Sprint(list)
}
