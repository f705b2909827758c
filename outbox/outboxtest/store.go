package outboxtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Harness is how the suite drives one kind of store.
type Harness[TTx any] struct {
	// New makes an empty outbox with the current schema, and removes it when t ends.
	New func(t *testing.T, o Options) Outbox[TTx]

	// Features says what the store can do.
	Features Features

	// Select says whether a case runs. Those it leaves out are not mentioned in the output. Nil: all run.
	Select func(name string) bool

	// TTL is that of the sessions whose hold expires in a case; all others have a minute. It must be long enough for a
	// Renew and a Lease. Defaults to 300 ms.
	TTL time.Duration

	// Run runs one case: it may call t.Parallel first, or be synctest.Test. Defaults to calling c.
	Run func(t *testing.T, c func(t *testing.T))
}

// Options of an outbox. The zero value of each field is the store's default.
type Options struct {
	KeepSent time.Duration // how long sent messages are kept
}

// Outbox is one outbox under test. The fields of the first group are required. The others are hooks that single cases
// need.
type Outbox[TTx any] struct {
	Writer     outbox.Writer[TTx]
	Queue      driver.Queue // may be opened many times; each session is another relay
	Operations outbox.Operations
	// InTx runs fn in a transaction, and commits it when fn returns nil. Several may be open at once, unless
	// Features.OneWriter. It is called again after an error that is Retryable.
	InTx func(ctx context.Context, fn func(tx TTx) error) error

	// Retryable reports whether another attempt may succeed after an error of InTx or of the Queue. Nil: never.
	Retryable func(error) bool
	// LockOrderingKey is the store's own.
	LockOrderingKey func(ctx context.Context, tx TTx, key string) error
	// Sent lists the IDs of the messages that are kept after they were sent.
	Sent func(t *testing.T) []string
	// Age makes the holds of the sessions of that name look as if they had begun d earlier: it makes them end d
	// earlier. It is called again after an error that is Retryable. Nil: the suite waits for holds to expire. With Age,
	// two cases still wait.
	Age func(ctx context.Context, name string, d time.Duration) error
	// SetBack makes the outbox look as if the database's clock had been set back by d: it moves the beginnings and the
	// ends of all holds and retries d ahead (until and set_at of txonce_relays and outbox_held, retry_at and failed_at
	// of outbox_messages). It is called again after an error that is Retryable.
	SetBack func(ctx context.Context, d time.Duration) error
}

// Features says what a store can do. It is data: a case that cannot exist is listed in the output with its reason, and
// never skipped.
type Features struct {
	LateSequence bool // sequence numbers are assigned at the end of the transaction of InTx, not in Enqueue
	OneWriter    bool // the database runs one writing transaction at a time, relays' ones included

	// DoesNotApply says of each other case that cannot exist on this store why. Nothing else may be left out: a case
	// whose hook is nil fails.
	DoesNotApply map[string]string
}

// TestStore runs the suite that every store must pass. Each case is a sub-test of its own, on an outbox of its own.
func TestStore[TTx any](t *testing.T, h Harness[TTx]) {
	all := storeCases[TTx]()
	for name := range h.Features.DoesNotApply {
		if !slices.ContainsFunc(all, func(c storeCase[TTx]) bool { return c.name == name }) {
			t.Errorf("Features.DoesNotApply names %q, which is no case of the suite", name)
		}
	}
	for _, c := range all {
		if h.Select != nil && !h.Select(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if reason := h.Features.without(c.name, c.needs); reason != "" {
				t.Logf("does not apply: %s", reason)
				return
			}
			h.run(t, func(t *testing.T) { c.run(newEnv(t, t, h, c)) })
		})
	}
}

func (h Harness[TTx]) run(t *testing.T, c func(t *testing.T)) {
	if h.Run == nil {
		c(t)
		return
	}
	h.Run(t, c)
}

// storeCase is one rule. Its name is the rule, so that a failure names the broken rule.
type storeCase[TTx any] struct {
	name   string
	hazard string // which of the known hazards it is about, for the failure's message
	needs  need
	opts   Options
	run    func(e *env[TTx])
}

// need is a feature of the store that a case needs.
type need int

const (
	nothing need = iota
	lateSequence
	twoWriters
)

// without says why a case cannot exist. Empty: it can.
func (f Features) without(name string, n need) string {
	switch {
	case n == lateSequence && !f.LateSequence:
		return "sequence numbers are assigned in Enqueue; transactions that enqueue before they take their locks call LockOrderingKey"
	case (n == twoWriters || n == lateSequence) && f.OneWriter:
		return "the database runs one writing transaction at a time"
	}
	return f.DoesNotApply[name]
}

func storeCases[TTx any]() []storeCase[TTx] {
	return slices.Concat(
		commitCases[TTx](),
		idCases[TTx](),
		orderCases[TTx](),
		leaseCases[TTx](),
		shareCases[TTx](),
		expiryCases[TTx](),
		clockCases[TTx](),
		fenceCases[TTx](),
		deferCases[TTx](),
		strangerCases[TTx](),
		parkCases[TTx](),
		limitCases[TTx](),
		delayCases[TTx](),
		upkeepCases[TTx](),
		relayCases[TTx](),
	)
}
