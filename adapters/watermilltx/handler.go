package watermilltx

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/counts"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/usercode"
)

// HandlerConfig configures a Handler.
type HandlerConfig struct {
	// Processor handles the messages: a consumer.Consumer. Required.
	Processor consumer.Processor

	// Amend sets fields of a message that watermill does not have: OrderingKey, Time, Position. Raw is the
	// *message.Message. It must set the same values on every delivery.
	//
	// Defaults to what ToMessage sets.
	Amend func(*consumer.Message)

	// MaxWait is the longest time that Handle holds a message that waits for its next attempts; then it is nacked.
	// MaxWait must be shorter than the broker's own limit, such as AckDeadline of watermill-sql.
	//
	// Defaults to DefaultMaxWait.
	MaxWait time.Duration

	// Logger gets a line for each message that the Processor rejects. Defaults to slog.Default().
	Logger *slog.Logger
}

// Handler delivers a watermill Router's messages to a consumer.Processor, so that a Consumer written for any broker
// runs on all of watermill's brokers. It is safe for concurrent use.
type Handler struct {
	cfg      HandlerConfig
	failures counts.Counter // by identity
}

// NewHandler returns a Handler, or an error that names the field of cfg that is at fault.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	switch {
	case cfg.Processor == nil:
		return nil, errors.New("watermilltx: HandlerConfig.Processor is required: a consumer.Consumer")
	case cfg.MaxWait < 0:
		return nil, fmt.Errorf("watermilltx: HandlerConfig.MaxWait is %v: want more than 0", cfg.MaxWait)
	}
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.Logger = usercode.Logger(cfg.Logger)
	return &Handler{cfg: cfg}, nil
}

// amend calls the user's function f. If that does not return, the message is as it was, and parked.
func amend(f func(*consumer.Message), msg *consumer.Message) {
	before := *msg
	if ended := usercode.Run(func() { f(msg) }); ended != nil {
		*msg = before
		msg.Malformed = ended.Of("watermilltx: Amend")
	}
}

// Handle is a message.NoPublishHandlerFunc, for Router.AddConsumerHandler. nil means that the message's effects are
// committed, or that it is parked: the Router acks. An error means neither: the Router nacks, and the broker delivers
// the message again.
//
// A message that needs another attempt waits here, up to MaxWait, and is nacked then. A message that the Processor
// rejects, because it keeps no dead letters, is never acked: it waits for MaxWait and comes again, with a line in the
// log each time.
func (h *Handler) Handle(raw *message.Message) error {
	ctx := raw.Context()
	msg := ToMessage(raw)
	id := identity(msg.Topic, raw)
	if h.cfg.Amend != nil {
		amend(h.cfg.Amend, msg)
	}
	until := time.Now().Add(h.cfg.MaxWait)
	for {
		attempt := *msg
		attempt.Attempt += h.failures.Of(id)
		// a BatchProcessor does not wait between attempts
		err := deliver.Call(ctx, h.cfg.Processor, []*consumer.Message{&attempt})[0]
		if err == nil {
			h.failures.Forget(id)
			return nil
		}
		retry, again := errors.AsType[*consumer.RetryError](err)
		if !again {
			h.cfg.Logger.ErrorContext(ctx, "watermilltx: message rejected, and the Processor keeps no dead letters: the message stays with the broker and comes again",
				"topic", msg.Topic, "position", msg.Position, "error", err)
			_ = await.Sleep(ctx, time.Until(until))
			return err
		}
		if !retry.Held {
			h.failures.Add(id)
		}
		left := time.Until(until)
		_ = await.Sleep(ctx, min(retry.After, left))
		if ctx.Err() != nil || retry.After >= left {
			return err
		}
	}
}
