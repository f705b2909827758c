package awssqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/counts"
)

// Subscriber receives the messages of one queue, and deletes what its Processor has finished.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	running atomic.Bool

	// uncountedReceives counts by message, also from one Run to the next, the receives by this process that were no attempts: deferrals,
	// stops, lost messages. SQS counts them.
	uncountedReceives counts.Counter
}

// NewSubscriber checks cfg. It does not talk to SQS.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	addSource(cfg.Processor, cfg.Queue)
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("queue", cfg.Queue)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, gives back what is not being handled, lets running handlers finish
// within the grace period, deletes what is finished and returns nil.
//
// Before the first message it checks what would go wrong later, and returns an error that names it: a queue that is missing or
// may not be seen, a Processor that cannot start or forgets too soon, a redrive policy that would take messages away. Later
// it returns an error when the Processor gave up on a message and kept it nowhere, when a handler goes on although its
// context is cancelled, and when SQS has refused this client for half a minute: the queue was deleted, or a permission is
// missing. Everything else, such as an SQS that is away, it waits out.
//
// It returns within Grace and 15 seconds of ctx's end, also where SQS does not answer: 5 for handlers to return once they are cancelled,
// 10 to delete and to give back. What SQS does not hear of by then is delivered again when its visibility timeout has run out.
//
// Run may be called again when it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("awssqs: Subscriber.Run is running already")
	}
	defer s.running.Store(false)

	q, err := s.look(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("awssqs: queue %s: %w", s.cfg.Queue, err)
	}
	// After the checks: a start registers the Processor's window, and one that is too short must not be registered.
	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
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

// addSource tells the Processor of a queue, which is a name, a URL or an ARN. All three end with the name.
func addSource(p consumer.Processor, queue string) {
	if sourced, ok := p.(consumer.Sourced); ok && queue != "" {
		sourced.AddSource("sqs queue " + queue[strings.LastIndexAny(queue, "/:")+1:])
	}
}
