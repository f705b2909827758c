package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/deliver"
)

// Subscriber receives the messages of a queue, and acknowledges those that its Processor has handled.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	running atomic.Bool

	retryQueuesAreOld bool // existing retry queues are used at once; set by tests, which know that these are old
}

// NewSubscriber returns a Subscriber, or an error that names all fields of cfg that are at fault. It does not connect.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if sourced, ok := cfg.Processor.(driver.Sourced); ok {
		sourced.AddSource("rabbitmq queue " + cfg.Queue)
	}
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, gives back messages that are not being handled, lets
// running handlers finish within the grace period, acknowledges handled messages and returns nil. Unfinished messages
// go back to the queue. In Ordered mode they all go back together at the end, because otherwise they would overtake
// those being handled. A handler that ignores its context and a server that does not answer delay the end by at most 21
// seconds in all.
//
// Before the first message it checks for problems that would appear later, and returns an error that names the problem:
// a server that cannot be reached, a queue that is missing or differs from Spec, a missing permission, a Processor that
// cannot start. Later it returns an error when going on makes no sense: when the Processor gave up on a message and
// stored it nowhere (the message stays in the queue), when the queue was deleted, when the server refuses this user, or
// when it hangs up for half a minute, which is how RabbitMQ refuses a password. It waits out everything else, such as a
// server that is away.
//
// Run may be called again after it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("rabbitmq: Subscriber.Run is running already")
	}
	defer s.running.Store(false)
	if starter, ok := s.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("rabbitmq: queue %s: its consumer does not start: %w", s.cfg.Queue, err)
		}
	}
	r := &run{
		cfg: &s.cfg, log: s.log, hooksCtx: context.WithoutCancel(ctx),
		events: deliver.NewObserver("rabbitmq", "rabbitmq", s.cfg.Queue, "RabbitMQ", s.cfg.Trace, s.log),
	}
	r.deliverer = deliver.New(ctx, deliver.Config{
		Processor: s.cfg.Processor, Concurrency: s.cfg.Concurrency, MaxBatch: s.cfg.MaxBatch,
		MaxBatchBytes: s.cfg.MaxBatchBytes,
		Settle:        r.settle, Keep: r.keep, Logger: s.log,
	})
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r.retries = newRetries(s, connected)
	err := r.sessions(ctx)
	cancel()
	r.retries.wait()
	r.events.Unsubscribed(r.hooksCtx, err)
	if err != nil {
		return fmt.Errorf("rabbitmq: queue %s: %w", s.cfg.Queue, err)
	}
	return nil
}

// run is one Run of a Subscriber.
type run struct {
	cfg       *SubscriberConfig
	log       *slog.Logger
	deliverer *deliver.Deliverer
	retries   *retries
	events    *deliver.Observer
	hooksCtx  context.Context // of hooks, which also run while Run ends
	warnOnce  sync.Once       // warnOfRisks
	expiring  sync.Once       // warnOfExpiration
}

// sessions opens session after session. The first one must succeed.
func (r *run) sessions(ctx context.Context) error {
	delay, failures := backoff.FullJitter(200*time.Millisecond, 10*time.Second), 0
	var hungUpSince time.Time // zero: the last failure was different
	for first := true; r.deliverer.Context().Err() == nil; first = false {
		s, err := r.open()
		opened := err == nil
		if opened {
			failures = 0
			if err = s.receive(); r.deliverer.Context().Err() != nil {
				return s.stop()
			}
			s.close()
		}
		if ctx.Err() != nil {
			break
		}
		switch {
		case !hangsUp(err):
			hungUpSince = time.Time{}
		case hungUpSince.IsZero():
			hungUpSince = time.Now()
		}
		fatal := r.fatal(err)
		if hangsUp(err) && !first && time.Since(hungUpSince) < refusedAfter {
			fatal = nil
		}
		if fatal == nil && first && !opened {
			fatal = err
		}
		if fatal != nil {
			r.deliverer.Fail(fatal)
			break
		}
		r.events.Broker.Failed(r.hooksCtx, true, err)
		failures++
		_ = await.Sleep(r.deliverer.Context(), delay(failures))
	}
	return r.deliverer.Drain(r.cfg.Grace, deliver.HandlerExit)
}

// settle is the Deliverer's Settle.
func (r *run) settle(d *deliver.Delivery, err error) {
	dl := d.Raw.(*delivery)
	var retry *consumer.RetryError
	switch {
	case err == nil:
		began := time.Now()
		if dl.session.ack(dl) {
			r.events.Acked(r.hooksCtx, driver.SourceEvent{Message: dl.msg, Began: began})
		}
	case errors.Is(err, deliver.ErrLost), r.cfg.Ordered:
		// The server has taken it back, or it goes back when the channel is closed, together with the messages behind
		// it.
	case !dl.session.holds(dl):
		// It went back because of its age, see watchAge, and is delivered again.
	case errors.As(err, &retry):
		attempt := d.Message.Attempt
		if !retry.Held {
			attempt++
		}
		if attempt == dl.attempt && r.deliverer.Context().Err() != nil {
			dl.session.giveBack(dl) // no attempt counts, and others may have it at once
			return
		}
		r.retries.add(&deferral{delivery: dl, after: retry.After, attempt: attempt})
	default: // rejected: it stays in the queue, and Drain returns the error
	}
}

// keep is the Deliverer's Keep: it reports whether a message waits in memory for its next attempt. In Ordered mode all
// do, because the next of their key must not overtake them. In other modes uncounted ones do, because otherwise a
// database that is away would send the whole queue through the retry queues, and so do those whose retry queue cannot
// be used yet. A message that expires goes through a retry queue, because its copy does not expire: a crash would give
// the message back as it is. No message is kept for so long that the server takes it back.
func (r *run) keep(d *deliver.Delivery, retry *consumer.RetryError) bool {
	if r.cfg.Ordered {
		return true
	}
	dl := d.Raw.(*delivery)
	if !dl.session.holds(dl) || time.Since(dl.since)+retry.After > r.cfg.ConsumerTimeout/2 {
		return false
	}
	return retry.Held && !dl.expires() || !r.retries.ready(retry.After)
}
