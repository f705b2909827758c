package consumer

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/observe"
)

const (
	// replayLease is how long a letter is taken. If its handler runs longer, another worker may try the letter too, and
	// finds its key in flight.
	replayLease = time.Minute

	// replayIdle is how often a worker looks for requests.
	replayIdle = 2 * time.Second

	// replayTriesMost is how often a letter may be taken for one request: it was in flight, or the database failed.
	replayTriesMost = 20

	// replayLostMost is how many processes may end while they try a letter for one request: the letter's handler may be
	// what ends them.
	replayLostMost = 5
)

// replayQueue is driver.ReplayQueue, which says what a store does. Package driver imports this one.
type replayQueue[TTx any] interface {
	TakeReplay(ctx context.Context, name string, lease time.Duration) (r *driver.RequestedReplay, letter DeadLetter,
		wait time.Duration, err error)
	SettleReplay(ctx context.Context, tx TTx, action [16]byte, letter DeadLetter, outcome observe.Outcome) error
	ReturnReplay(ctx context.Context, action [16]byte, letter DeadLetterID, failed observe.Cause, text string,
		wait time.Duration) error
}

var errReplayLost = fmt.Errorf("%d processes took it, and ended or still work on it: it is not tried again",
	replayLostMost)

// RunReplays replays the dead letters of this consumer that operators request to be replayed, one at a time, until ctx
// ends; then it returns nil. See package consumer/ops for the requests. Run it in every process that may do this work,
// beside the Subscriber: workers take different letters. A replay that fails leaves the letter as it is, and the
// request's results say why. Failures of the database are logged, and it tries again. It fails at once if the Store is
// not a driver.ReplayQueue, and returns ErrClosed after Close. It must not be called again before it has returned.
//
// If a Subscriber or a webhook Receiver was made with this Consumer, RunReplays waits until the Subscriber or the
// Receiver has started the Consumer. A Subscriber first checks its topics or its queue, and nothing may be recorded if
// it refuses them. After two seconds RunReplays logs that it waits.
//
// Each letter is claimed, processed and removed in one transaction that also records the result. After a crash before
// COMMIT nothing has happened, and another worker tries the letter a minute later, after the other letters. When five
// processes have ended, the letter fails.
func (c *Consumer[TTx]) RunReplays(ctx context.Context) error {
	queue, ok := c.cfg.Store.(replayQueue[TTx])
	if !ok {
		return fmt.Errorf("consumer %q: replays: the store keeps no requests: it is not a driver.ReplayQueue",
			c.cfg.Name)
	}
	c.awaitStart(ctx)
	failures := 0
	for ctx.Err() == nil {
		wait, err := c.replayNext(ctx, queue)
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			failures++
			c.replayFault.Failed(ctx, failures >= faultsToLog, err)
			wait = c.cfg.backoff(failures)
		default:
			failures = 0
			c.replayFault.Worked(ctx)
		}
		_ = await.Sleep(ctx, wait) // the loop looks at ctx
	}
	return nil
}

// awaitStart waits until the Consumer has been registered, if it has sources: then somebody else starts it.
func (c *Consumer[TTx]) awaitStart(ctx context.Context) {
	const step = 100 * time.Millisecond
	r := c.registration
	for waited := time.Duration(0); len(r.sources.list()) > 0 && !r.registered.Load() && ctx.Err() == nil &&
		!r.closed.Load(); waited += step {
		if waited == replayIdle {
			c.cfg.Logger.InfoContext(ctx, "replays wait until the Subscriber or the Receiver has started the consumer",
				"consumer", c.cfg.Name,
				"sources", r.sources.list())
		}
		_ = await.Sleep(ctx, step) // the loop looks at ctx
	}
}

// replayNext replays one letter, if a request is open. It returns how long to wait before the next one.
func (c *Consumer[TTx]) replayNext(ctx context.Context, queue replayQueue[TTx]) (wait time.Duration, err error) {
	if err := c.registration.register(ctx); err != nil {
		return 0, err
	}
	r, letter, wait, err := queue.TakeReplay(ctx, c.cfg.Name, replayLease)
	if err != nil {
		return 0, fmt.Errorf("consumer %q: take a requested replay: %w", c.cfg.Name, err)
	}
	if r == nil {
		if wait <= 0 {
			wait = replayIdle
		}
		return min(wait, replayIdle), nil
	}
	back := func(ctx context.Context, failed observe.Cause, text string, wait time.Duration) error {
		return queue.ReturnReplay(ctx, r.Action, letter.ID, failed, text, wait)
	}
	if r.Lost >= replayLostMost {
		return 0, back(ctx, observe.CauseCrashed, errReplayLost.Error(), 0)
	}
	how := Replay{Key: r.Key, AsNew: r.AsNew}
	if r.Payload != nil {
		how.Repair = func(m *Message) error { m.Payload = bytes.Clone(r.Payload); return nil }
	}
	ran, err := c.replayLetter(ctx, letter, how, func(ctx context.Context, tx TTx, ran bool) error {
		outcome := observe.Duplicate
		if ran {
			outcome = observe.Processed
		}
		return queue.SettleReplay(ctx, tx, r.Action, letter, outcome)
	})
	cause := c.classify.causeIn(ctx, err)
	switch {
	case err == nil:
		c.cfg.Logger.InfoContext(ctx, "dead letter replayed", "consumer", c.cfg.Name, "letter", letter.ID, "key",
			letter.Record.Key.ID, "action", hex.EncodeToString(r.Action[:]), "ran", ran)
		return 0, nil
	case errors.Is(err, ErrNotParked) && r.Tries < replayTriesMost:
		// It was discarded, or it has changed: the next look finds out. Or the request has ended, and this does
		// nothing.
		return 0, back(ctx, "", "", 0)
	case cause == observe.CauseCancelled:
		later, cancel := outlive(ctx, takeWithin) // so that another worker need not wait for the lease to end
		defer cancel()
		return 0, back(later, "", "", 0)
	case cause == observe.CauseInFlight && r.Tries < replayTriesMost:
		// Longer and longer: another worker may still be busy with it, or have frozen until the server ends its
		// transaction.
		return 0, back(ctx, "", "", time.Duration(r.Tries)*c.cfg.backoff(r.Tries))
	case cause == observe.CauseDatabase && r.Tries < replayTriesMost:
		return 0, errors.Join(c.replayError(letter, err), back(ctx, "", "", c.cfg.backoff(r.Tries)))
	}
	c.cfg.Logger.WarnContext(ctx, "requested replay failed; the dead letter stays", "consumer", c.cfg.Name, "letter",
		letter.ID, "key", letter.Record.Key.ID,
		"action", hex.EncodeToString(r.Action[:]), "cause", cause, "error", err)
	return 0, back(ctx, cause, err.Error(), 0)
}
