package outboxtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// writerFunc is a Writer.
type writerFunc func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error

func (w writerFunc) Enqueue(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
	return w(ctx, tx, msgs...)
}

// altered enqueues what alter makes of each message.
func altered(alter func(m *outbox.Message)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) {
		o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				msgs[i].Headers = maps.Clone(msgs[i].Headers)
				alter(&msgs[i])
			}
			return m.Enqueue(ctx, tx, msgs...)
		})
	}
}

func text(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "") }

func brokenWriters() []brokenStore {
	return []brokenStore{
		{name: "enqueues in a transaction of its own", found: []string{
			"rollback publishes nothing", "what is not committed is not leased",
			"a rollback forgets what was to come later",
		}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, _ *Tx, msgs ...outbox.Message) error {
				return m.InTx(ctx, func(tx *Tx) error { return m.Enqueue(ctx, tx, msgs...) })
			})
		}},
		{name: "takes header values for text", found: []string{
			"commit makes a message leasable with every field intact", "parking and unparking keep every field",
			"what comes later arrives with every field intact",
		}, breaks: altered(func(m *outbox.Message) {
			for name, value := range m.Headers {
				m.Headers[name] = text(value)
			}
		})},
		{name: "cuts keys", found: []string{
			"messages at the limits are deferred, parked and published", "a message beyond a limit is refused by name",
		}, breaks: altered(func(m *outbox.Message) { m.OrderingKey = m.OrderingKey[:min(len(m.OrderingKey), 1000)] })},
		{name: "takes keys for text", found: []string{"commit makes a message leasable with every field intact"}, breaks: altered(func(m *outbox.Message) {
			m.OrderingKey = text(m.OrderingKey)
		})},
		{name: "loses header names that are no text", found: []string{"header names arrive intact or are refused"}, breaks: altered(func(m *outbox.Message) {
			maps.DeleteFunc(m.Headers, func(name, _ string) bool { return text(name) != name })
		})},
		{name: "cuts payloads at 64 KiB", found: []string{"a payload of 1 MB arrives intact"}, breaks: altered(func(m *outbox.Message) {
			m.Payload = m.Payload[:min(len(m.Payload), 64<<10)]
		})},
		{name: "enqueues the good messages of a call that it refuses", found: []string{
			"a bad message is refused, and nothing of its call is enqueued",
			"a message without ID is refused outside a handler's scope",
		}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				for _, msg := range msgs {
					if err := m.Enqueue(ctx, tx, msg); err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{name: "guesses IDs", found: []string{
			"a message without ID is refused outside a handler's scope",
			"a re-execution enqueues the same IDs, whatever the bounds of its calls",
		}, breaks: altered(func(m *outbox.Message) {
			if m.ID == "" && m.Topic != "" {
				m.ID = fmt.Sprint(rand.Uint64())
			}
		})},
		{name: "begins a scope with each call", found: []string{"a re-execution enqueues the same IDs, whatever the bounds of its calls"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				ctx, end := driver.WithScope(ctx, "handler")
				defer end()
				return m.Enqueue(ctx, tx, msgs...)
			})
		}},
		{name: "never ends its calls", found: []string{"a re-execution enqueues the same IDs, whatever the bounds of its calls"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				ready, _, err := driver.Prepare(ctx, msgs)
				if err != nil {
					return err
				}
				return m.Enqueue(ctx, tx, ready...)
			})
		}},
		{name: "reads its arguments when the transaction ends", found: []string{"Enqueue keeps nothing of its caller's"}, breaks: late},
		{name: "enqueues a message where there is none", found: []string{"Enqueue of nothing does nothing"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				if len(msgs) == 0 {
					msgs = []outbox.Message{message("none", "")}
				}
				return m.Enqueue(ctx, tx, msgs...)
			})
		}},
		{name: "turns long calls around", found: []string{"5,000 messages in one call", "the messages of a key keep their order"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				if msgs = slices.Clone(msgs); len(msgs) > 20 {
					slices.Reverse(msgs)
				}
				return m.Enqueue(ctx, tx, msgs...)
			})
		}},
		{name: "takes the time of the client, which is wrong", found: []string{"the time of Enqueue is the database's"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
				err := m.Enqueue(ctx, tx, msgs...)
				for _, r := range tx.rows {
					r.Enqueued = r.Enqueued.Add(time.Minute)
				}
				return err
			})
		}},
		{name: "numbers in Enqueue", early: true, found: []string{"order is that of the transactions, whoever enqueued first"}},
		{name: "LockOrderingKey does nothing", found: []string{"LockOrderingKey makes transactions of one key exclude each other"}, breaks: func(_ *Memory, o *Outbox[*Tx]) {
			o.LockOrderingKey = func(context.Context, *Tx, string) error { return nil }
		}},
		{name: "LockOrderingKey has one lock for all", found: []string{"LockOrderingKey of two keys does not wait"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.LockOrderingKey = func(ctx context.Context, tx *Tx,
				_ string,
			) error {
				return m.LockOrderingKey(ctx, tx, "one")
			}
		}},
		{name: "waits for older transactions", found: []string{"a transaction that stays open delays no other"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			var open atomic.Int64
			o.InTx = func(ctx context.Context, fn func(*Tx) error) error {
				open.Add(1)
				defer open.Add(-1)
				return m.InTx(ctx, fn)
			}
			o.Queue = &hooks{Memory: m, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				if open.Load() > 0 {
					return nil, nil
				}
				return s.Lease(ctx, want)
			}}
		}},
	}
}

// late keeps the arguments of Enqueue until COMMIT.
func late(m *Memory, o *Outbox[*Tx]) {
	var kept [][]outbox.Message
	o.Writer = writerFunc(func(ctx context.Context, tx *Tx, msgs ...outbox.Message) error {
		_, done, err := driver.Prepare(ctx, msgs)
		if err == nil {
			done()
		}
		kept = append(kept, msgs)
		return err
	})
	o.InTx = func(ctx context.Context, fn func(*Tx) error) error {
		return m.InTx(ctx, func(tx *Tx) error {
			kept = nil
			if err := fn(tx); err != nil {
				return err
			}
			for _, msgs := range kept {
				if err := m.Enqueue(ctx, tx, msgs...); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
