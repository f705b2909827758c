package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/lanes"
)

// Subscriber receives the messages of a queue, and acknowledges what its Processor has finished.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	running atomic.Bool
}

// NewSubscriber checks cfg. It does not connect.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if sourced, ok := cfg.Processor.(consumer.Sourced); ok {
		sourced.AddSource("rabbitmq queue " + cfg.Queue)
	}
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, gives back at once what is not begun, lets running handlers finish within the
// grace period, acknowledges what is finished and returns nil. What is not finished goes back to the queue. In Ordered mode all of it goes
// back together, at the end: else it would overtake what is being handled. A handler that ignores its context and a server that does
// not answer delay the end by 21 seconds in all, at the most.
//
// Before the first message it checks what would go wrong later, and returns an error that names it: a server that cannot be
// reached, a queue that is missing or other than Spec, a missing permission, a Processor that cannot start. Later it returns an error
// when going on makes no sense: when the Processor gave up on a message and kept it nowhere (it stays in the queue), when the
// queue was deleted, when the server refuses this user, or hangs up on it for half a minute, which is how RabbitMQ refuses a password.
// Everything else, such as a server that is away, it waits out.
//
// Run may be called again when it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("rabbitmq: Subscriber.Run is running already")
	}
	defer s.running.Store(false)
	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("rabbitmq: queue %s: its consumer does not start: %w", s.cfg.Queue, err)
		}
	}
	r := &run{Subscriber: s}
	r.lanes = lanes.New(ctx, lanes.Config{
		Processor: s.cfg.Processor, Concurrency: s.cfg.Concurrency, MaxBatch: s.cfg.MaxBatch, MaxBatchBytes: s.cfg.MaxBatchBytes,
		Settle: r.settle, Keep: r.keep, Grace: s.cfg.Grace, Logger: s.log,
	})
	life, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die()
	r.retries = newRetries(s, life)
	err := r.sessions(ctx)
	die()
	r.retries.wait()
	if err != nil {
		return fmt.Errorf("rabbitmq: queue %s: %w", s.cfg.Queue, err)
	}
	return nil
}

// run is one Run of a Subscriber.
type run struct {
	*Subscriber
	lanes   *lanes.Lanes
	retries *retries
	said    sync.Once // what is allowed
}

// sessions goes from connection to connection. The first one has to succeed.
func (r *run) sessions(ctx context.Context) error {
	failures := 0
	var hungUp time.Time // since when the server does nothing else
	for first := true; r.lanes.Context().Err() == nil; first = false {
		se, err := r.open()
		if err == nil {
			failures = 0
			if err = se.serve(); r.lanes.Context().Err() != nil {
				return se.leave()
			}
			se.abandon(err)
		}
		if ctx.Err() != nil {
			break
		}
		switch {
		case !hangsUp(err):
			hungUp = time.Time{}
		case hungUp.IsZero():
			hungUp = time.Now()
		}
		fix := r.hopeless(err)
		if hangsUp(err) && !first && time.Since(hungUp) < refusesWithin {
			fix = nil
		}
		if fix != nil || first && se == nil {
			if fix == nil {
				fix = err
			}
			r.lanes.Fail(fix)
			break
		}
		r.log.Warn("rabbitmq: the connection is lost; connecting again, what it held is delivered again", "error", err)
		failures++
		r.pause(failures)
	}
	return r.lanes.Drain()
}

// pause waits before the next session.
func (r *run) pause(failures int) {
	limit := min(100*time.Millisecond<<min(failures, 7), 10*time.Second)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.lanes.Context().Done():
	}
}

// settle is told by lanes what became of a delivery.
func (r *run) settle(d *lanes.Delivery, err error) {
	dl := d.Raw.(*delivery)
	var retry *consumer.RetryError
	switch {
	case err == nil:
		dl.session.ack(dl)
	case errors.Is(err, lanes.ErrLost), r.cfg.Ordered:
		// Not ours any more; or it goes back, with what follows it, when the channel is closed.
	case errors.As(err, &retry):
		attempt := d.Message.Attempt
		if !retry.Uncounted {
			attempt++
		}
		if attempt == dl.attempt && r.lanes.Context().Err() != nil {
			dl.session.giveBack(dl) // nothing to remember: others may have it at once
			return
		}
		r.retries.add(&putting{delivery: dl, after: retry.After, attempt: attempt})
	default: // rejected: it stays in the queue, and Drain says why
	}
}

// keep reports whether a message that is to be handled again waits for that in memory: what must not be overtaken, and what is
// held up by no fault of its own, since a database that is away would otherwise send the whole queue round in circles.
// Nothing is kept for so long that the server takes it away.
func (r *run) keep(d *lanes.Delivery, retry *consumer.RetryError) bool {
	if r.cfg.Ordered {
		return true
	}
	if time.Since(d.Raw.(*delivery).since)+retry.After > r.cfg.ConsumerTimeout/2 {
		return false
	}
	return retry.Uncounted || !r.retries.ready(retry.After)
}
