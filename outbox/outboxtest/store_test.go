package outboxtest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/outbox/outboxtest"
)

// harness drives a Memory. In a bubble its cases take no time.
func harness() outboxtest.Harness[*outboxtest.Tx] {
	return outboxtest.Harness[*outboxtest.Tx]{
		New: func(_ *testing.T, o outboxtest.Options) outboxtest.Outbox[*outboxtest.Tx] {
			return inMemory(o,
				false)
		},
		Features: outboxtest.Features{LateSequence: true},
		Run:      synctest.Test,
	}
}

func inMemory(o outboxtest.Options, early bool) outboxtest.Outbox[*outboxtest.Tx] {
	m := outboxtest.NewMemory()
	m.KeepSent, m.EarlySequence = o.KeepSent, early
	return outboxtest.Outbox[*outboxtest.Tx]{
		Writer: m, Queue: m, Operations: m,
		InTx:    func(ctx context.Context, fn func(*outboxtest.Tx) error) error { return m.InTx(ctx, fn) },
		SetBack: m.SetBack, LockOrderingKey: m.LockOrderingKey,
		Sent: func(*testing.T) []string { return m.Sent() },
	}
}

func TestOutboxInMemory(t *testing.T) {
	t.Run("in a bubble", func(t *testing.T) { outboxtest.TestStore(t, harness()) })
	t.Run("in real time", func(t *testing.T) {
		h := harness()
		h.Run = func(t *testing.T, c func(*testing.T)) {
			t.Parallel()
			c(t)
		}
		outboxtest.TestStore(t, h)
	})
	t.Run("with early sequence numbers", func(t *testing.T) {
		h := harness()
		h.New = func(_ *testing.T, o outboxtest.Options) outboxtest.Outbox[*outboxtest.Tx] { return inMemory(o, true) }
		h.Features.LateSequence = false
		outboxtest.TestStore(t, h)
	})
}
