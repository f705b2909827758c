package consumer

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/tokens"
	"github.com/txonce/txonce/observe"
)

// gate is asked before each transaction, handler and letter, and gets a report of each. It has one rule for each thing
// that may go wrong for more than one message:
//
//   - faults: the database fails, so all messages wait, the longer the more faults follow each other.
//   - sharing: transactions collide, so fewer messages share one.
//   - plainly: interleaved handlers have failed, so for a while they run one after the other.
//   - budget: Config.ParkLimit is spent, so handlers run one at a time, as probes.
//   - refusals: too many messages are refused before their handlers, so those wait, and the others go on.
//
// The rules are separate values, because none of them needs to know about another. A gate is safe for concurrent use.
type gate struct {
	faults   pause
	sharing  batchLimit
	plainly  plainly
	budget   *parkBudget
	refusals *refusalLimit
	reports  []*hooks.Pause // of the pauses that Trace.Paused and Resumed tell
}

func newGate[TTx any](cfg *Config[TTx], panics *hooks.Panics) *gate {
	report := func(cause observe.Cause, why func(error) string, waitsFor, recovered string) *hooks.Pause {
		return &hooks.Pause{
			Logger: panics.Logger, Owner: "consumer", Panics: panics, Paused: cfg.Trace.Paused,
			Resumed: cfg.Trace.Resumed,
			What:    observe.Pause{Name: cfg.Name, Cause: cause}, Why: why, WaitsFor: waitsFor, Recovered: recovered,
		}
	}
	database := report(observe.CauseDatabase,
		func(err error) string { return explain(err) + "; nothing is parked, and the consumer tries again" },
		"a COMMIT of what failed: of a claim, of a handler's work, or of a dead letter", "the database commits again")
	budget := report(observe.CauseBudget, func(error) string { return "too many messages to park; Config.ParkLimit is spent" },
		"a handler that succeeds; messages are tried one at a time",
		"handlers succeed, and messages can be parked again")
	return &gate{
		faults:   pause{backoff: cfg.backoff, report: database},
		budget:   newParkBudget(cfg.ParkLimit, budget),
		refusals: &refusalLimit{logger: panics.Logger, bucket: tokens.NewBucket(tokens.Limit(cfg.ParkLimit))},
		reports:  []*hooks.Pause{database, budget},
	}
}

// wish is what a pass wants to do next.
type wish struct {
	what  step
	err   error // of aLetter: why the message is parked
	about []any // of aLetter: names the message in the log
}

type step uint8

const (
	aTransaction step = iota // begin a transaction
	aHandler                 // run the handler of one message
	aLetter                  // park a message
	aRefusal                 // park a message that was refused before its handler
)

// entry is the answer to a wish.
type entry struct {
	epoch int  // for the report of a fault
	most  int  // of aTransaction: how many messages may share it; 0: no limit
	plain bool // of aTransaction: no handlers are interleaved

	probe bool          // of aHandler: it runs as a probe, so report how that ended
	wait  time.Duration // how long to wait before the next wish; 0: go on
	err   error         // of aHandler: why it must wait
}

// admit says whether and how a pass may do what it wants to do.
func (g *gate) admit(ctx context.Context, w wish) (e entry) {
	switch w.what {
	case aTransaction:
		e.epoch, e.most, e.plain = g.faults.epoch(), g.sharing.now(), g.plainly.now()
	case aHandler:
		e.probe, e.wait, e.err = g.budget.admit(ctx)
	case aLetter:
		e.wait = g.budget.take(ctx, w.err, w.about...)
	case aRefusal:
		e.wait = g.refusals.take(ctx, w.err, w.about...)
	}
	return e
}

// event is what has happened since a gate admitted something.
type event struct {
	what happened

	at       stage         // of committed and faulted
	messages int           // of committed and collided: how many shared the transaction
	ran      int           // of committed: how many of them were new
	took     time.Duration // of collided and interleaveBroke

	epoch    int   // of faulted: of the entry
	err      error // of faulted
	failures int   // of faulted: to wait as long as after that many, or longer
	about    []any // of faulted: names the message in the log, if it is about one

	unused step   // of notWritten: what was admitted
	probe  probed // of probeEnded
}

type happened uint8

const (
	committed        happened = iota // the database has committed a transaction that got as far as at
	faulted                          // the database failed
	collided                         // the database ended a transaction of several messages, as a deadlock does
	interleaveWorked                 // handlers were interleaved, and committed
	interleaveBroke                  // handlers were interleaved, and the transaction failed
	notWritten                       // a letter that was admitted adds none
	probeEnded                       // a handler that ran as a probe has ended
)

// report tells the gate what has happened. After a fault it returns how long to wait.
func (g *gate) report(ctx context.Context, e event) (wait time.Duration) {
	switch e.what {
	case committed:
		g.faults.recovered(ctx, e.at)
		if e.messages > 0 && 2*e.ran >= e.messages {
			g.sharing.succeeded(e.messages)
		}
	case faulted:
		return g.faults.fault(ctx, e.err, e.at, e.epoch, e.failures, e.about...)
	case collided:
		g.sharing.failed(e.messages, e.took)
	case interleaveWorked:
		g.plainly.succeeded()
	case interleaveBroke:
		g.plainly.failed(e.took)
	case notWritten:
		if e.unused == aRefusal {
			g.refusals.giveBack()
		} else {
			g.budget.giveBack()
		}
	case probeEnded:
		g.budget.settle(e.probe)
	}
	return 0
}

// end ends the pauses, because the consumer is closed: a process with another Consumer is not paused.
func (g *gate) end(ctx context.Context) {
	for _, p := range g.reports {
		p.End(ctx)
	}
}
