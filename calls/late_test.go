package calls_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Two relays that both saw that a call was not tried make it once.
func TestARelayThatWasFrozenMakesNoCall(t *testing.T) {
	var frozen func()
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] {
			return slowKeeper{k, &frozen}
		}
	})
	frozen = func() { // between reading the record and writing it, another relay makes the call
		if err := b.publish("a", 0); err != nil {
			t.Error(err)
		}
	}
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) {
		t.Errorf("%v", err)
	}
	b.want(1, 1)
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

type slowKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
	before *func()
}

func (k slowKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	if f := *k.before; f != nil {
		*k.before = nil
		f()
	}
	return k.CallKeeper.BeginTry(ctx, key, seen, try)
}

// The time of a try ends when the record says, also when the process stood still before Do.
func TestATryThatBeganTooLateIsNotMade(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Timeout = 20 * time.Millisecond
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] {
			return lateKeeper{k}
		}
	})
	if err := b.publish("a", 0); !errors.Is(err, outboxdriver.ErrNotTried) {
		t.Errorf("%v", err)
	}
	b.want(0, 0)
	if got := b.record("a"); got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

type lateKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
}

func (k lateKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	began, err := k.CallKeeper.BeginTry(ctx, key, seen, try)
	<-time.After(try.Within)
	return began, err
}

func TestCallsRunAtOnceUpToConcurrencyAndNoneTooLate(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	b := newBank(t, func(b *bank) {
		b.cfg.Concurrency, b.cfg.Timeout = 3, 100*time.Millisecond
		b.cfg.Do = func(ctx context.Context, _ calls.Call) (calls.Result, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-time.After(50 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return calls.Result("charged a"), ctx.Err()
		}
	})
	var msgs []outboxdriver.Leased
	for i := range 100 {
		msgs = append(msgs, leased(strings.Repeat("x", i+1), 0))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	made, untried := 0, 0
	for i, err := range b.calls.PublishLeased(ctx, msgs) {
		switch {
		case err == nil:
			made++
		case errors.Is(err, outboxdriver.ErrNotTried):
			if untried++; b.record(msgs[i].ID).Token != 0 {
				t.Error("a call that was not made has a record")
			}
		default:
			t.Error(err)
		}
	}
	if most != 3 || made < 3 || untried == 0 {
		t.Errorf("%d at once, %d made, %d not tried", most, made, untried)
	}
}

func TestACallMayBeEnqueuedForLater(t *testing.T) {
	b := newBank(t, nil)
	due := time.Now().Add(72 * time.Hour)
	err := b.store.InTx(t.Context(), nil, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		return b.calls.Enqueue(t.Context(), tx, calls.Request{ID: "a", OrderingKey: "o", Payload: []byte("10 EUR"), NotBefore: due})
	})
	if err != nil {
		t.Fatal(err)
	}
	m := b.store.enqueued[0]
	if m.Topic != "charge" || m.ID != "a" || m.OrderingKey != "o" || !m.NotBefore.Equal(due) {
		t.Errorf("enqueued %+v", m)
	}
	for name, tt := range map[string]struct {
		due  time.Time
		made bool
	}{"due now": {time.Now(), true}, "due two days ago": {time.Now().Add(-48 * time.Hour), false}} {
		l := leased(name, 72*time.Hour)
		l.Headers = map[string]string{"calls-not-before": tt.due.Format(time.RFC3339Nano)}
		if err := b.calls.PublishLeased(t.Context(), []outboxdriver.Leased{l})[0]; (err == nil) != tt.made {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A later try may succeed although an earlier one, whose process was frozen, is refused.
func TestALateRefusalDoesNotSettleACallThatAnotherRelayMakes(t *testing.T) {
	frozen, refused := make(chan struct{}), make(chan error, 1)
	thaw := make(chan struct{})
	b := newBank(t, func(b *bank) {
		b.cfg.Failed = func(_ context.Context, tx *deduptest.Tx, _ calls.Call, err error) error { return tx.Add(err.Error()) }
		b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
			if c.Attempts == 0 {
				close(frozen)
				<-thaw
				return nil, outbox.Permanent(errors.New("card declined"))
			}
			close(thaw)
			var deferred *outboxdriver.DeferError
			if err := <-refused; !errors.As(err, &deferred) {
				t.Errorf("the refusal of the first relay: %v, want it deferred", err)
			}
			b.charged[c.IdempotencyKey]++
			return calls.Result("charged " + c.ID), nil
		}
	})
	go func() { refused <- b.publish("a", 0) }()
	<-frozen
	again := leased("a", 0)
	again.Attempts = 1
	if err := b.calls.PublishLeased(t.Context(), []outboxdriver.Leased{again})[0]; err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
	if n := b.store.Database().Count("card declined"); n != 0 {
		t.Errorf("Failed ran %d times for a call that was made", n)
	}
}

// A refusal is not settled beside a try that another relay has begun while it was recorded.
func TestARefusalIsNotSettledBesideAnotherTry(t *testing.T) {
	var others sync.WaitGroup
	made := make(chan struct{})
	b := newBank(t, func(b *bank) {
		b.cfg.Failed = func(_ context.Context, tx *deduptest.Tx, _ calls.Call, err error) error {
			others.Go(func() { _ = b.publish("a", 0) })
			<-made
			return tx.Add(err.Error())
		}
	})
	b.do = append(b.do, func(string) error { return outbox.Permanent(errors.New("card declined")) }, func(key string) error {
		b.charged[key]++
		close(made)
		return nil
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) {
		t.Errorf("the refusal: %v, want it deferred", err)
	}
	others.Wait()
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
	if n := b.store.Database().Count("card declined"); n != 0 {
		t.Errorf("Failed ran %d times for a call that was made", n)
	}
}

// After a freeze the time of a context may be over although its timer has not fired yet.
func TestTheClockSaysThatATryIsTooLate(t *testing.T) {
	began := time.Now()
	for _, tt := range []struct {
		ctx  context.Context
		want bool
	}{
		{noTimer{t.Context(), began.Add(time.Hour)}, false},
		{noTimer{t.Context(), began}, true},
	} {
		if got := calls.Late(tt.ctx); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}

// noTimer is a context that ends at a time, and whose timer never fires.
type noTimer struct {
	context.Context
	at time.Time
}

func (c noTimer) Deadline() (time.Time, bool) { return c.at, true }
