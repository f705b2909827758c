package consumer

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Message is one delivery. A Subscriber fills it in; handlers read it and must not keep or change it.
type Message struct {
	ID       string            // natural key, where the source states one; Config.Key decides
	Topic    string            //
	Key      string            // ordering key: messages of one Key are handled in order; empty: free
	Position string            // where the broker keeps it, the same on redelivery: "orders/3/1042"
	Payload  []byte            //
	Headers  map[string]string // values are bytes; of a repeated name the last one counts
	Time     time.Time         // when it came into being, the same on every delivery; zero: unknown
	Attempt  int               // 1 on the first delivery; who delivers again adds one
	Raw      any               // the broker's own message, for what this struct has no field for

	Malformed error // why the Subscriber could not read it; what it has is as it came. Such a message is parked

	// For sources that have authenticated the message. They take precedence over Config.
	Tenant      string             // empty: from Config.Tenant
	Fingerprint *dedup.Fingerprint // of what is the same on every delivery; nil: from Config.Fingerprint
	Aliases     []string           // further keys; a message one of them knows while ID is new is a suspected replay: parked
}

// Handler does the work of one message in tx. nil commits the work together with the message's claim; an error or a
// panic rolls both back. It may run more than once, but only one run commits: what it does outside tx may happen twice.
type Handler[TTx any] func(ctx context.Context, tx TTx, msg *Message) error

// BatchHandler does the work of several messages in tx, all or none. Each message is new, and they stand in the order
// of their delivery. After an error smaller batches are tried, down to single messages.
type BatchHandler[TTx any] func(ctx context.Context, tx TTx, msgs []*Message) error

// Processor is what subscribers deliver to; *Consumer is one. nil means that the message's effects are committed, by this
// delivery or an earlier one, or that it is parked: acknowledge it. A *RetryError means that nothing was committed:
// deliver it again. Any other error means that it was given up on and kept nowhere: reject it, never drop it.
//
// Process sleeps between attempts, for as long as ctx lets it. It is safe for concurrent use.
type Processor interface {
	Process(ctx context.Context, msg *Message) error
}

// BatchProcessor never sleeps. errs[i] says of msgs[i] what the error of Process says.
// Messages of one Key that follow a failed one are held back with a uncounted *RetryError: deliver
// them again once the failed one has succeeded or is parked.
type BatchProcessor interface {
	ProcessBatch(ctx context.Context, msgs []*Message) (errs []error)
}

// Starter is a Processor that can say before the first message what would make every message fail. Subscribers call
// Start when they begin to run. It waits out by itself what passes by itself, such as a database that is away, until ctx
// ends: an error is final, and Run ends with it, unless ctx has ended.
type Starter interface {
	Start(ctx context.Context) error
}

// Sourced is a Processor that records where its messages come from, so that two services under one name are found out.
// Subscribers call AddSource before Start, for each queue or topic that they receive from.
type Sourced interface {
	// AddSource takes a name such as "sqs queue orders". The same one again changes nothing.
	AddSource(source string)
}

// Windowed is a Processor that remembers keys for a time. Subscribers compare it with how long their source may
// deliver again.
type Windowed interface {
	Window() time.Duration
}
