package awssqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/counts"
)

// Subscriber receives the messages of one queue, and deletes those that its Processor has handled.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	running atomic.Bool

	// uncountedReceives has for each message the number of receives that SQS counts and that were no attempts:
	// deferrals, stops, lost messages. It outlives a Run.
	uncountedReceives counts.Counter
}

// NewSubscriber returns a Subscriber, or an error that names all fields of cfg that are at fault. It does not talk to
// SQS.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	addSource(cfg.Processor, cfg.Queue)
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, gives back messages that are not being handled, lets
// running handlers finish within the grace period, deletes handled messages and returns nil.
//
// Before the first message it checks for problems that would appear later, and returns an error that names the problem:
// a queue that is missing or may not be read, a Processor that cannot start or forgets keys too soon, a redrive policy
// that would take messages away. Later it returns an error when the Processor gave up on a message and stored it
// nowhere, when a handler goes on although its context is cancelled, and when SQS has refused this client for half a
// minute: the queue was deleted, or a permission is missing. It waits out everything else, such as SQS being away.
//
// It returns within Grace and 15 seconds after the end of ctx, also when SQS does not answer: handlers have 5 seconds
// to return after they were cancelled, and deletions and returns have 10. Messages that SQS does not hear about in that
// time are delivered again when their visibility timeout expires.
//
// Run may be called again after it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("awssqs: Subscriber.Run is running already")
	}
	defer s.running.Store(false)

	q, err := s.inspect(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("awssqs: queue %s: %w", s.cfg.Queue, err)
	}
	// After the checks: a start registers the Processor's window, and one that is too short must not be registered.
	if starter, ok := s.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("awssqs: queue %s: the Processor does not start: %w", s.cfg.Queue, err)
		}
	}
	if err := newReception(ctx, s, q).run(); err != nil {
		return fmt.Errorf("awssqs: queue %s: %w", q.name, err)
	}
	return nil
}

// addSource tells the Processor about a queue, given as a name or a URL.
func addSource(p consumer.Processor, queue string) {
	if sourced, ok := p.(driver.Sourced); ok {
		sourced.AddSource("sqs queue " + queue[strings.LastIndexByte(queue, '/')+1:])
	}
}
