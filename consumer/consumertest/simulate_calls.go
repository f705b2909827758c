package consumertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/sim"
)

// MaxLate is how long after Process.Request has returned a request may still arrive.
const MaxLate = 3 * time.Second

var errNoAnswer = errors.New("consumertest: there was no answer")

// Request is a boundary between the process and another system, such as a payment provider. do is what happens there,
// and returns its answer. The request or its answer may be lost, or the request may arrive when Request has returned
// already, MaxLate later at most. After a freeze it is not sent when ctx has ended.
func (p *Process) Request(ctx context.Context, what string, do func() error) error {
	f := p.sim.At("request", what)
	switch f.Action {
	case sim.Gone, "lost":
		return errNoAnswer
	case "crash before":
		p.sim.Crash()
		return errNoAnswer
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.Action == "late" {
		p.of.later(p, what, f.For, do)
		return errNoAnswer
	}
	err := do()
	p.sim.Note("the request %s arrives: %v", what, err)
	switch f.Action {
	case "answer lost":
		return errNoAnswer
	case "crash after":
		p.sim.Crash()
		return errNoAnswer
	}
	return err
}

// later lets a request arrive after a while.
func (w *world) later(p *Process, what string, d time.Duration, do func() error) {
	timer := time.NewTimer(p.sim.Unlike(min(d, MaxLate-time.Second)))
	w.working.Add(1)
	w.sim.Go(func() {
		defer w.working.Add(-1)
		defer timer.Stop()
		select {
		case <-timer.C:
			err := do()
			p.sim.Note("the request %s arrives late: %v", what, err)
		case <-w.ctx.Done():
		}
	})
}

// Shared returns the same value in all processes of a case: what make returned when it was called first. It is for what
// is outside of the processes, such as another system. It must be safe for concurrent use.
func (p *Process) Shared(make func() any) any { return p.of.sharedValue(make) }

// Shared returns what Process.Shared returned in the processes of the case; nil: it was not called.
func (w *World) Shared() any { return w.w.sharedValue(nil) }

func (w *world) sharedValue(make func() any) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared == nil && make != nil {
		w.shared = make()
	}
	return w.shared
}

// Calls implements driver.CallStore.
func (s *ProcessStore) Calls() driver.CallKeeper[*deduptest.Tx] {
	return processCalls{s.Store.Calls(), s.p}
}

// processCalls has a boundary for each access to the record of a call.
type processCalls struct {
	driver.CallKeeper[*deduptest.Tx]
	p *Process
}

// at is the boundary around do.
func (k processCalls) at(what string, key dedup.Key, do func() error) error {
	f := k.p.sim.At("call record", fmt.Sprint(what, " ", key.ID))
	switch f.Action {
	case sim.Gone, "cut":
		return errCut
	case "crash before":
		k.p.sim.Crash()
		return errCut
	}
	err := do()
	switch f.Action {
	case "answer lost":
		return errCut
	case "crash after":
		k.p.sim.Crash()
		return errCut
	}
	return err
}

// Call implements driver.CallKeeper.
func (k processCalls) Call(ctx context.Context, key dedup.Key) (c driver.Call, err error) {
	err = k.at("read", key, func() error {
		c, err = k.CallKeeper.Call(ctx, key)
		return err
	})
	return c, err
}

// BeginTry implements driver.CallKeeper.
func (k processCalls) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call,
	try driver.Try,
) (began bool, err error) {
	err = k.at("begin a try of", key, func() error {
		began, err = k.CallKeeper.BeginTry(ctx, key, seen, try)
		return err
	})
	return began && err == nil, err
}

// TakeBackTry implements driver.CallKeeper.
func (k processCalls) TakeBackTry(ctx context.Context, key dedup.Key, token int64, before driver.Call) error {
	return k.at("take back a try of", key, func() error {
		return k.CallKeeper.TakeBackTry(ctx, key, token, before)
	})
}

// AnswerCall implements driver.CallKeeper.
func (k processCalls) AnswerCall(ctx context.Context, key dedup.Key, seen int64,
	a driver.Answer,
) (recorded bool, err error) {
	err = k.at("keep the answer of", key, func() error {
		recorded, err = k.CallKeeper.AnswerCall(ctx, key, seen, a)
		return err
	})
	return recorded && err == nil, err
}
