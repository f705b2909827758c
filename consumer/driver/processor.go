package driver

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// A consumer.Processor may implement the following interfaces. Subscribers find them by type assertion. A Consumer
// implements all of them; what a Processor that wraps one does not pass on is lost.

var (
	_ BatchProcessor = (*consumer.Consumer[any])(nil)
	_ Starter        = (*consumer.Consumer[any])(nil)
	_ Sourced        = (*consumer.Consumer[any])(nil)
	_ Keyed          = (*consumer.Consumer[any])(nil)
	_ Windowed       = (*consumer.Consumer[any])(nil)
	_ Positioned     = (*consumer.Consumer[any])(nil)
)

// BatchProcessor handles several messages at once, without sleeping between attempts. errs[i] answers msgs[i], as the
// error of Process does; errs has one element for each message, also if all are nil. When a message fails, the later
// messages with the same consumer.Message.OrderingKey get a *consumer.RetryError with Held: deliver them again after
// the failed message has succeeded or is parked. It is safe for concurrent use.
//
// Without it a Subscriber hands over one message at a time.
type BatchProcessor interface {
	ProcessBatch(ctx context.Context, msgs []*consumer.Message) (errs []error)
}

// Starter is a consumer.Processor that checks at start what would otherwise make every message fail. Subscribers call
// Start when their Run begins. Start waits for a database that is away. An error ends Run, and only a person can
// correct its cause, unless ctx has ended.
//
// Without it what a person must correct appears with the first message.
type Starter interface {
	Start(ctx context.Context) error
}

// Sourced is a consumer.Processor that records where its messages come from, which reveals two services with the same
// name. Before Start, subscribers call AddSource for each queue or topic that they receive from.
//
// Without it nothing notices a second service with the name, and each takes the other's messages for duplicates.
type Sourced interface {
	// AddSource takes a name such as "sqs queue orders". Adding a name twice changes nothing.
	AddSource(source string)
}

// Keyed is a consumer.Processor that can say which key it finds in a message.
//
// Without it a webhook's Receiver does not notice that its Key finds no key in any event, and such events are parked.
type Keyed interface {
	// KeyFor returns the key that msg is claimed under, or the error that it would be parked for as no_key. It calls
	// Config.Tenant and Config.Key, and claims nothing.
	KeyFor(msg *consumer.Message) (dedup.Key, error)
}

// Windowed is a consumer.Processor that remembers keys for a limited time. Subscribers compare that time with how long
// their source may deliver a message again.
//
// Without it a window that is too short is not noticed, and messages that come again after it run twice.
type Windowed interface {
	Window() time.Duration
}

// Positioned is a consumer.Processor whose Store remembers how far the messages of a source are handled.
//
// Without it a Subscriber of Kafka does not notice that the database went back, as after a failover to a standby that
// lacked the latest commits, and the messages whose effects were lost are never handled again.
type Positioned interface {
	// Positions returns the Store, and the name under which its positions are kept. store is nil if the Store is no
	// driver.Positions.
	Positions() (store driver.Positions, consumer string)
}
