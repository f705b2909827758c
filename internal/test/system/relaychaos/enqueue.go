//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// enqueuers is the number of concurrent handlers.
const enqueuers = 12

// enqueuer executes the plan's commands as handlers of a consumer.
type enqueuer struct {
	plan      *plan
	topic     string
	faults    *faultQueue
	relayed   func(context.Context) bool // whether everything committed so far has been relayed
	writer    outbox.Writer[pgx.Tx]
	committed atomic.Int64 // messages
	rolled    atomic.Int64 // executions that were rolled back after enqueueing
	runs      atomic.Int64 // executions
}

// run delivers each command when it is due, and returns when all are handled.
func (e *enqueuer) run(ctx context.Context, store dedup.Store[pgx.Tx], start time.Time) error {
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name:      "chaos",
		Store:     store,
		Key:       consumer.MessageID,
		Handle:    e.handle,
		Backoff:   consumer.FullJitter(5*time.Millisecond, 50*time.Millisecond),
		ParkLimit: consumer.ParkLimit{Unlimited: true}, // the plan has commands that always fail
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	trickle := time.NewTicker(50 * time.Millisecond)
	defer trickle.Stop()
	var next atomic.Int64
	var all sync.WaitGroup
	for range enqueuers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(e.plan.commands) {
					return
				}
				if err := e.deliver(ctx, c, i, start, trickle.C); err != nil {
					cancel(fmt.Errorf("command %d: %w", i, err))
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// deliver waits until command i is due and may run, and delivers it once or twice.
func (e *enqueuer) deliver(ctx context.Context, c *consumer.Consumer[pgx.Tx], i int, start time.Time,
	trickle <-chan time.Time,
) error {
	cmd := &e.plan.commands[i]
	if err := sleep(ctx, time.Until(start.Add(cmd.due))); err != nil {
		return err
	}
	if cmd.due > e.plan.last() {
		if err := e.awaitTurn(ctx, trickle); err != nil {
			return err
		}
	}
	if err := c.Process(ctx, incoming(i)); err != nil {
		return err
	}
	if cmd.fate != refuses {
		e.committed.Add(int64(cmd.count))
	}
	if cmd.again {
		return c.Process(ctx, incoming(i))
	}
	return nil
}

// awaitTurn delays commands that are due after the last planned fault. While faults are left, these run one by one at a
// slow pace, each after the previous messages were relayed. So even on a slow machine, where relays start late, the
// remaining faults find messages to publish.
func (e *enqueuer) awaitTurn(ctx context.Context, trickle <-chan time.Time) error {
	for {
		select {
		case <-e.faults.over:
			return nil
		case <-trickle:
			if e.relayed(ctx) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func incoming(i int) *consumer.Message {
	return &consumer.Message{ID: "command-" + strconv.Itoa(i), Payload: []byte(strconv.Itoa(i))}
}

// insertLedger locks the key's row and records the messages with their numbers within the key. Committed messages must
// be published in the order of these numbers.
const insertLedger = `
	WITH counted AS (UPDATE chaos_keys SET n = n + cardinality($2::text[]) WHERE key = $1 RETURNING n - cardinality($2::text[]) AS before)
	INSERT INTO chaos_ledger (id, key, n, payload)
	SELECT m.id, $1, counted.before + m.i, m.payload FROM counted, unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS m(id, payload, i)`

var errOnPurpose = errors.New("on purpose")

// handle is an ordinary handler, except for its planned failures.
func (e *enqueuer) handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	i, err := strconv.Atoi(string(msg.Payload))
	if err != nil {
		return err
	}
	cmd := &e.plan.commands[i]
	msgs := e.messages(cmd, e.runs.Add(1))
	if err := driver.AssignIDs(ctx, msgs); err != nil { // Enqueue would do it too, but the ledger needs the IDs
		return err
	}
	note := func() error { return enter(ctx, tx, cmd.key, msgs) }
	enqueue := func() error { return e.writer.Enqueue(ctx, tx, msgs...) }
	steps := []func() error{note, enqueue}
	if cmd.early {
		steps = []func() error{enqueue, note} // messages of a key are still ordered by commit
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return e.end(ctx, tx, cmd)
}

// end ends the execution as planned. Every fate except refuses affects a command once. A command runs only once at a
// time.
func (e *enqueuer) end(ctx context.Context, tx pgx.Tx, cmd *command) error {
	how := cmd.fate
	if how == fine {
		return nil
	}
	e.rolled.Add(1)
	if how == refuses {
		return consumer.Permanent(errOnPurpose)
	}
	cmd.fate = fine
	switch how {
	case panics:
		panic(errOnPurpose)
	case breaks:
		_, err := tx.Exec(ctx, `SELECT 1/0`)
		return err
	default:
		return errOnPurpose
	}
}

// messages makes the messages of an execution. The payload starts with the execution's number, to recognize messages
// that were rolled back. The rest is binary, to recognize changed bytes.
func (e *enqueuer) messages(cmd *command, run int64) []outbox.Message {
	msgs := make([]outbox.Message, cmd.count)
	for i := range msgs {
		payload := fmt.Appendf(nil, "%s%c%d%c", execution(run), 0, i, 0)
		for range 20 + rand.IntN(180) {
			payload = append(payload, byte(rand.Uint32()))
		}
		msgs[i] = outbox.Message{
			Topic: e.topic, OrderingKey: keyName(cmd.key), Payload: payload,
			Headers: map[string]string{headerDigest: digest(payload)},
		}
	}
	return msgs
}

func enter(ctx context.Context, tx pgx.Tx, key int, msgs []outbox.Message) error {
	ids, payloads := make([]string, len(msgs)), make([][]byte, len(msgs))
	for i, m := range msgs {
		ids[i], payloads[i] = m.ID, m.Payload
	}
	_, err := tx.Exec(ctx, insertLedger, key, ids, payloads)
	return err
}

// headerDigest is the only header that messages are enqueued with.
const headerDigest = "digest"

func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:8])
}

func keyName(key int) string { return "key-" + strconv.Itoa(key) }

// execution returns the first bytes of each payload.
func execution(run int64) string { return fmt.Sprintf("%012d", run) }

const executionLength = 12

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
