package calls_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// What is known of a call that has happened is not lost when Done fails.
func TestDoneRunsAgainWithoutAnotherCall(t *testing.T) {
	failures := []error{errors.New("constraint"), outbox.Permanent(errors.New("no account"))}
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		done := b.cfg.Done
		b.cfg.Done = func(ctx context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
			if len(failures) > 0 {
				err := failures[0]
				failures = failures[1:]
				return err
			}
			return done(ctx, tx, c, r)
		}
	})
	for i := range 2 {
		if err := b.publish("a", 0); !errors.As(err, new(*outbox.HappenedError)) || outbox.IsPermanent(err) != (i == 1) {
			t.Errorf("Done fails: %v", err)
		}
	}
	if err := b.publish("a", 40*24*time.Hour); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

// A deadlock is no reason to forget that the call has happened.
func TestDoneRunsAgainWithoutAnotherCallAfterTheDatabaseFailed(t *testing.T) {
	failures := 1
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		done := b.cfg.Done
		b.cfg.Done = func(ctx context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
			if failures--; failures >= 0 {
				return deduptest.ErrDeadlock
			}
			return done(ctx, tx, c, r)
		}
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) || !errors.As(err, new(*outbox.HappenedError)) {
		t.Errorf("Done fails: %v", err)
	}
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
	if got := b.record("a"); !got.Settled || got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

// COMMIT has arrived, and its answer was lost.
func TestASettledCallLeavesNoRecord(t *testing.T) {
	b := newBank(t, nil)
	b.store.commits.Store(&errLost)
	if err := b.publish("a", 0); !errors.As(err, new(*outbox.HappenedError)) {
		t.Errorf("%v", err)
	}
	if got := b.record("a"); !got.Settled || got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

// A failover may take the record of a try away, and what the handler has committed.
func TestAfterAFailoverFindIsAskedFirst(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps, b.cfg.Find, b.cfg.Settles, b.cfg.Timeout = 0, b.find, 50*time.Millisecond, 100*time.Millisecond
	})
	snapshot := b.store.Database().Snapshot()
	b.do = append(b.do, b.lost)
	if err := b.publish("a", 0); !inDoubt(err) || b.asked != 1 {
		t.Fatalf("%v, and Find was asked %d times", err, b.asked)
	}
	b.store.Database().Promote(snapshot)
	// The handler runs again, and enqueues the call anew.
	var early *outboxdriver.DeferError
	if err := b.publish("a", 0); !errors.As(err, &early) || b.asked != 1 {
		t.Fatalf("a request may be under way whose record was lost: %v, and Find was asked %d times", err, b.asked)
	}
	<-time.After(early.After + 2*time.Millisecond)
	if err := b.publish("a", 0); err != nil || b.asked != 2 {
		t.Fatalf("%v, and Find was asked %d times", err, b.asked)
	}
	b.want(1, 1)
}

// The record of the try was committed, and the answer was lost. The call was not made.
func TestATryThatWasNotMadeIsTakenBack(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] { return &deafKeeper{k, 1} }
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outbox.UnavailableError)) {
		t.Errorf("%v", err)
	}
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

type deafKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
	left int
}

func (k *deafKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	began, err := k.CallKeeper.BeginTry(ctx, key, seen, try)
	if k.left--; k.left >= 0 && err == nil {
		return false, deduptest.ErrDown
	}
	return began, err
}

// The keys of a consumer are not those of calls.
func TestAConsumerOfAnotherServiceHasTheName(t *testing.T) {
	b := newBank(t, nil)
	if err := b.store.RegisterSources(t.Context(), "charge", []string{"sqs queue charges"}); err != nil {
		t.Fatal(err)
	}
	if err := b.publish("a", 0); !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("%v", err)
	}
	b.want(0, 0)
}

func TestUsersCodeThatPanics(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Do = func(context.Context, calls.Call) (calls.Result, error) { panic("nil pointer") }
	})
	if err := b.publish("a", 0); !inDoubt(err) || !strings.Contains(err.Error(), "Do panicked: nil pointer") {
		t.Error(err)
	}
	b = newBank(t, func(b *bank) {
		b.cfg.Done = func(context.Context, *deduptest.Tx, calls.Call, calls.Result) error { panic("nil pointer") }
	})
	if err := b.publish("a", 0); !strings.Contains(err.Error(), "Done panicked: nil pointer") {
		t.Error(err)
	}
}

func TestTheStoreIsAway(t *testing.T) {
	b := newBank(t, nil)
	b.store.Database().Stop()
	for range 2 {
		if err := b.publish("a", 0); !errors.As(err, new(*outbox.UnavailableError)) || inDoubt(err) {
			t.Errorf("%v", err)
		}
	}
	b.store.Database().Start()
	if err := b.publish("a", 0); err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
}
