package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// DefaultInboxWindow is how long an Inbox remembers events. Without a signed time nothing else stops a delivery that
// was captured long ago.
const DefaultInboxWindow = 400 * 24 * time.Hour

// InboxConfig configures an Inbox. TTx is the native transaction of its Store.
type InboxConfig[TTx any] struct {
	// Name is the Name of the consumer that handles the events later. The Inbox claims them under Name + "/inbox":
	// under the same name the consumer would take each event for a duplicate. Required.
	Name string

	// Store keeps the claims of the Inbox, and its dead letters: known content and mismatches. Required.
	Store dedup.Store[TTx]

	// Outbox takes the events, in the transaction of their claims.
	//
	// Defaults to Store, if that is an outbox.Writer.
	Outbox outbox.Writer[TTx]

	// Topic is the topic of the outbox messages. Give the relay a publisher for it: a Worker, or that of a broker.
	//
	// Defaults to Name + ".inbox".
	Topic string

	// Window is how long events are remembered. It must be at least Source.Horizon.
	//
	// Defaults to DefaultInboxWindow.
	Window time.Duration

	// ParkLimit is that of consumer.Config.
	//
	// Defaults to that of consumer.Config.
	ParkLimit consumer.ParkLimit

	// Logger is that of consumer.Config.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Trace has the hooks of consumer.Config, for what the Inbox stores.
	//
	// Defaults to no hooks.
	Trace *consumer.Trace
}

// Inbox is a Processor for a Receiver that stores events instead of handling them: one transaction claims an event and
// its aliases, and adds the event to an outbox. The sender gets its answer after that commit. A relay then forwards the
// events, to a Worker in the same program or to a broker. It is safe for concurrent use.
type Inbox[TTx any] struct {
	consumer *consumer.Consumer[TTx]
	topic    string
}

var (
	_ driver.BatchProcessor = (*Inbox[any])(nil)
	_ driver.Starter        = (*Inbox[any])(nil)
	_ driver.Sourced        = (*Inbox[any])(nil)
	_ driver.Windowed       = (*Inbox[any])(nil)
	_ forwarder             = (*Inbox[any])(nil)
)

// NewInbox returns an Inbox, or an error that names the field of cfg that is invalid. It does not use the database.
func NewInbox[TTx any](cfg InboxConfig[TTx]) (*Inbox[TTx], error) {
	if cfg.Outbox == nil {
		cfg.Outbox, _ = cfg.Store.(outbox.Writer[TTx])
	}
	cfg.Topic = cmp.Or(cfg.Topic, cfg.Name+".inbox")
	cfg.Window = cmp.Or(cfg.Window, DefaultInboxWindow)
	probe := outbox.Message{Topic: cfg.Topic}
	_, parks := cfg.Store.(driver.ParkingLot[TTx])
	switch {
	case cfg.Name == "":
		return nil, errors.New("webhook: InboxConfig.Name is required: the Name of the consumer that handles the events")
	case isNil(cfg.Store):
		return nil, errors.New("webhook: InboxConfig.Store is required, and must not be a nil pointer")
	case isNil(cfg.Outbox):
		return nil, fmt.Errorf("webhook: InboxConfig.Outbox is required, because the Store %T is not an outbox.Writer",
			cfg.Store)
	case !parks:
		return nil, fmt.Errorf("webhook: InboxConfig.Store %T keeps no dead letters: it is no consumer/driver.ParkingLot; "+
			"embed the type of the store (such as *pgxstore.Store) in a wrapper, and not dedup.Store", cfg.Store)
	case probe.Validate() != nil:
		return nil, fmt.Errorf("webhook: InboxConfig.Topic: %w", probe.Validate())
	}
	in := &Inbox[TTx]{topic: cfg.Topic}
	var err error
	in.consumer, err = consumer.New(consumer.Config[TTx]{
		Name: cfg.Name + "/inbox", Store: cfg.Store, Key: consumer.MessageID, Window: cfg.Window,
		ParkLimit: cfg.ParkLimit, Logger: cfg.Logger, Trace: cfg.Trace,
		Handle: forward(cfg.Topic, cfg.Outbox), TrustHandlers: true, // forward ends no transaction
	})
	if err != nil {
		return nil, fmt.Errorf("webhook: InboxConfig: %w", err)
	}
	return in, nil
}

// forward returns the handler that adds an event to the outbox.
func forward[TTx any](topic string, out outbox.Writer[TTx]) consumer.Handler[TTx] {
	return func(ctx context.Context, tx TTx, msg *consumer.Message) error {
		m, err := forwarded(topic, msg)
		if err == nil {
			err = out.Enqueue(ctx, tx, m)
		}
		if errors.Is(err, outbox.ErrBadMessage) {
			return consumer.Permanent(err)
		}
		return err
	}
}

// ProcessBatch implements driver.BatchProcessor: nil means that an event is stored, by this call or an earlier one, or
// is parked.
func (in *Inbox[TTx]) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return in.consumer.ProcessBatch(ctx, msgs)
}

// Start implements driver.Starter.
func (in *Inbox[TTx]) Start(ctx context.Context) error { return in.consumer.Start(ctx) }

// AddSource implements driver.Sourced.
func (in *Inbox[TTx]) AddSource(source string) { in.consumer.AddSource(source) }

// Window implements driver.Windowed.
func (in *Inbox[TTx]) Window() time.Duration { return in.consumer.Window() }

// Consumer returns the consumer that claims events for the Inbox, for its dead letters: Consumer.DeadLetters, Replay
// and Discard.
func (in *Inbox[TTx]) Consumer() *consumer.Consumer[TTx] { return in.consumer }

// Topic returns InboxConfig.Topic or its default, for relay.Config.Publishers.
func (in *Inbox[TTx]) Topic() string { return in.topic }

func (in *Inbox[TTx]) forwards() {}
