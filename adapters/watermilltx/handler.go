package watermilltx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
)

// HandlerConfig of a Handler.
type HandlerConfig struct {
	// Processor handles the messages: a consumer.Consumer. Required.
	Processor consumer.Processor

	// Amend completes a message for what watermill has no field for: Key, Time, Position. Raw is the *message.Message.
	// It must say the same on every delivery. Defaults to what ToMessage fills in.
	Amend func(*consumer.Message)

	// MaxWait is how long a message is held, at the most, while it waits for its next attempts; then it is nacked. Shorter
	// than the broker's own limit, such as AckDeadline of watermill-sql. Defaults to DefaultMaxWait.
	MaxWait time.Duration

	// Logger gets a line for each message that the Processor rejects. Defaults to slog.Default().
	Logger *slog.Logger
}

// Handler delivers a watermill Router's messages to a consumer.Processor, so that a Consumer written for any broker runs on
// all of watermill's. It is safe for concurrent use.
type Handler struct {
	cfg      HandlerConfig
	once     func(context.Context, *consumer.Message) error // never sleeps, unless the Processor cannot but
	attempts attempts
}

// NewHandler checks cfg.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	switch {
	case cfg.Processor == nil:
		return nil, errors.New("watermilltx: HandlerConfig.Processor is required: a consumer.Consumer")
	case cfg.MaxWait < 0:
		return nil, fmt.Errorf("watermilltx: HandlerConfig.MaxWait is %v: want more than 0", cfg.MaxWait)
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = DefaultMaxWait
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Handler{cfg: cfg, once: cfg.Processor.Process}
	if batches, ok := cfg.Processor.(consumer.BatchProcessor); ok {
		h.once = func(ctx context.Context, msg *consumer.Message) error {
			return batches.ProcessBatch(ctx, []*consumer.Message{msg})[0]
		}
	}
	return h, nil
}

// Handle is a message.NoPublishHandlerFunc, for Router.AddConsumerHandler. nil says that the message's effects are committed,
// or that it is parked: the Router acks. An error says that it is not: the Router nacks, and the broker delivers it again.
//
// What waits for its next attempt waits here, up to MaxWait, and is nacked then. What the Processor rejects, because it keeps
// no dead letters, is never acked: it waits for MaxWait and comes again, with a line in the log each time.
func (h *Handler) Handle(raw *message.Message) error {
	ctx := raw.Context()
	msg := ToMessage(raw)
	id := identity(msg.Topic, raw)
	if h.cfg.Amend != nil {
		h.cfg.Amend(msg)
	}
	until := time.Now().Add(h.cfg.MaxWait)
	for {
		attempt := *msg
		attempt.Attempt += h.attempts.of(id)
		err := h.once(ctx, &attempt)
		if err == nil {
			h.attempts.forget(id)
			return nil
		}
		retry, again := errors.AsType[*consumer.RetryError](err)
		if !again {
			h.cfg.Logger.ErrorContext(ctx, "watermilltx: message rejected, it stays with the broker and comes again; the Processor keeps no dead letters",
				"topic", msg.Topic, "position", msg.Position, "error", err)
			waiting(ctx, time.Until(until), h.cfg.MaxWait)
			return err
		}
		if !retry.Uncounted {
			h.attempts.fail(id)
		}
		left := time.Until(until)
		waiting(ctx, retry.After, left)
		if ctx.Err() != nil || retry.After >= left {
			return err
		}
	}
}
