package watermilltx

import (
	"cmp"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox"
)

// DefaultMaxWait is the longest time that a failed message waits before it is nacked.
const DefaultMaxWait = 5 * time.Second

// Config configures a Middleware. TTx is the native transaction of its Store.
type Config[TTx any] struct {
	// Name is part of every key, as in consumer.Config: each handler of the Router needs a name of its own. Required.
	Name string

	// Store keeps the claims and the dead letters. Required.
	Store dedup.Store[TTx]

	// Key returns a message's business key: consumer.JSONKey, consumer.HeaderKey for metadata, or any function. The
	// UUID is no business key: watermill makes it while publishing, and an event that is published again has another
	// one. Required.
	Key consumer.KeyFunc

	// Outbox gets the messages that the handler produces, in the handler's transaction. In most programs it is the same
	// as Store.
	//
	// Defaults to none: then a handler that produces messages fails.
	Outbox outbox.Writer[TTx]

	// Topic returns the topic of a produced message. An empty one is an error.
	//
	// Defaults to the publish topic that the handler was added to the Router with.
	Topic func(in, produced *message.Message) string

	// OrderingKey returns the ordering key of a produced message: messages of one key are published in their order.
	//
	// Defaults to the metadata MetadataKey.
	OrderingKey func(produced *message.Message) string

	// Join uses the transaction that watermill-sql/v3's subscriber received the message in, so that effect, claim and
	// acknowledgement are one COMMIT. TTx must be *sql.Tx, and the database PostgreSQL.
	//
	// Defaults to a transaction of the Store's own for each attempt, which is right for every broker.
	Join bool

	// Amend sets fields of a message that watermill does not have: OrderingKey, Time, Position. Raw is the
	// *message.Message. It must set the same values on every delivery.
	//
	// Defaults to what ToMessage sets.
	Amend func(*consumer.Message)

	// These fields mean the same as in consumer.Config, and have the same defaults.
	Tenant      consumer.KeyFunc
	Window      time.Duration
	Fingerprint consumer.FingerprintFunc
	MaxAttempts int
	Backoff     func(attempt int) time.Duration
	ParkLimit   consumer.ParkLimit
	Trace       *consumer.Trace

	MismatchIsDuplicate, ParkUntimed, RejectGivenUp, TrustHandlers bool

	// MaxWait is the longest time that a failed message waits before it is nacked. watermill cannot delay a redelivery,
	// so the Middleware waits for the delay of consumer.RetryError. MaxWait must be shorter than the broker's own
	// limit, such as AckDeadline of watermill-sql. A negative value means that a failed message is nacked at once.
	//
	// Defaults to DefaultMaxWait.
	MaxWait time.Duration

	// Logger gets one line for each message that is parked or rejected. Defaults to slog.Default().
	Logger *slog.Logger
}

// withDefaults returns cfg with its defaults, or an error that names the wrong field.
func (cfg Config[TTx]) withDefaults() (Config[TTx], error) {
	if cfg.Key == nil {
		return cfg, fmt.Errorf("watermilltx: Config.Key is required: consumer.JSONKey, consumer.HeaderKey, or any function; " +
			"a message's UUID is new on every publication")
	}
	if cfg.Store == nil {
		return cfg, fmt.Errorf("watermilltx: Config.Store is required")
	}
	if cfg.Join {
		store, ok := any(cfg.Store).(dedup.Store[*sql.Tx])
		if !ok {
			var tx TTx
			return cfg, fmt.Errorf("watermilltx: Config.Join: watermill-sql's transactions are of type *sql.Tx, and Config.Store's are %T", tx)
		}
		joining, err := newJoiningStore(store)
		if err != nil {
			return cfg, err
		}
		cfg.Store = any(joining).(dedup.Store[TTx])
	}
	if cfg.Topic == nil {
		cfg.Topic = func(in, _ *message.Message) string { return message.PublishTopicFromCtx(in.Context()) }
	}
	if cfg.OrderingKey == nil {
		cfg.OrderingKey = func(produced *message.Message) string { return produced.Metadata.Get(MetadataKey) }
	}
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.Logger = usercode.Logger(cfg.Logger)
	return cfg, nil
}

// consumer makes the Consumer whose handler is handle.
func (cfg Config[TTx]) consumer(handle consumer.Handler[TTx]) (*consumer.Consumer[TTx], error) {
	c, err := consumer.New(consumer.Config[TTx]{
		Name: cfg.Name, Store: cfg.Store, Key: cfg.Key, Handle: handle,
		Tenant: cfg.Tenant, Window: cfg.Window, Fingerprint: cfg.Fingerprint,
		MismatchIsDuplicate: cfg.MismatchIsDuplicate,
		ParkUntimed:         cfg.ParkUntimed, RejectGivenUp: cfg.RejectGivenUp, TrustHandlers: cfg.TrustHandlers,
		MaxAttempts: cfg.MaxAttempts, Backoff: cfg.Backoff, ParkLimit: cfg.ParkLimit, Logger: cfg.Logger,
		Trace: cfg.Trace,
	})
	if err != nil {
		return nil, fmt.Errorf("watermilltx: %w", err)
	}
	return c, nil
}
