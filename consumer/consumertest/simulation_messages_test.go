package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Kinds of messages, in the header "kind".
const (
	good    = "good"
	poison  = "poison"  // fails each time
	flaky   = "flaky"   // fails once
	ignored = "ignored" // the handler drops it on purpose: it has no effect
	keyless = "keyless" // has no ID, which is the key
)

var errPoison = errors.New("poison")

// orders returns one to three messages, some of which were sent twice. In two of three cases, messages have ordering
// keys.
func orders(r *rand.Rand) (msgs []consumer.Message) {
	keys := [][]string{{""}, {"a"}, {"", "a", "b"}}[r.IntN(3)]
	for i := range 1 + r.IntN(3) {
		kind := good
		switch {
		case r.IntN(8) == 0:
			kind = poison
		case r.IntN(6) == 0:
			kind = flaky
		case r.IntN(8) == 0:
			kind = ignored
		}
		id := fmt.Sprint("m", i+1)
		m := consumer.Message{ID: id, OrderingKey: keys[r.IntN(len(keys))], Payload: []byte(id)}
		if kind == poison && i == 2 {
			kind, m.ID = keyless, ""
		}
		m.Headers = map[string]string{"kind": kind, "key": m.OrderingKey}
		for range 1 + r.IntN(5)/4 {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

// once reports of each name once that it is the first time.
type once struct {
	mu   sync.Mutex
	seen map[string]bool
}

func newOnce() any { return &once{seen: map[string]bool{}} }

func (o *once) first(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.seen[name]
	o.seen[name] = true
	return !before
}

// settings are drawn for a case. They are the same in all its processes.
type settings struct {
	maxAttempts, perTransaction int
	billing, accounting         form
	outgoingKey                 string        // ordering key of what is enqueued
	delay                       time.Duration // of NotBefore; 0: it is not set
	keyed                       bool          // the provider of payments knows idempotency keys
}

// form is how a consumer handles messages.
type form int

const (
	handle      form = iota
	handleBatch      // its errors name the message
	handleUnnamed
	interleave
)

func draw(r *rand.Rand) settings {
	s := settings{maxAttempts: 1 + r.IntN(3), perTransaction: r.IntN(3), outgoingKey: "k"}
	s.billing = []form{handle, handle, handle, handleBatch, handleUnnamed, interleave}[r.IntN(6)]
	s.accounting = []form{handle, handle, handleBatch, interleave}[r.IntN(4)]
	if s.billing == interleave && s.perTransaction == 1 {
		s.perTransaction = 2
	}
	if r.IntN(4) == 0 {
		s.outgoingKey = ""
	}
	if r.IntN(6) == 0 {
		s.delay = time.Duration(1+r.IntN(2000)) * time.Millisecond
	}
	s.keyed = r.IntN(2) == 0
	return s
}

// notBefore is what is set for the next outgoing message.
func (s settings) notBefore() time.Time {
	if s.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(s.delay)
}

// configure lets cfg handle messages with one, in that form.
func (f form) configure(cfg consumer.Config[tx], one consumer.Handler[tx]) (*consumer.Consumer[tx], error) {
	switch f {
	case interleave:
		cfg.Interleave = true
		fallthrough
	case handle:
		cfg.Handle = one
	default:
		cfg.HandleBatch = func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
			for _, m := range msgs {
				switch err := one(consumer.Scope(ctx, m), tx, m); {
				case err != nil && f == handleBatch:
					return &consumer.MessageError{Message: m, Err: err}
				case err != nil:
					return err
				}
			}
			return nil
		}
	}
	return consumer.New(cfg)
}
