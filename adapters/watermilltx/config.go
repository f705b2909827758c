package watermilltx

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// DefaultMaxWait is how long a failed message waits inside the middleware before it is nacked.
const DefaultMaxWait = 5 * time.Second

// Config of a Middleware. TTx is the native transaction of its Store.
type Config[TTx any] struct {
	// Name is part of every key, as consumer.Config.Name: one name for one handler of the Router. Required.
	Name string

	// Store keeps the claims. As a consumer.ParkingLot it also keeps the messages given up on. Required.
	Store dedup.Store[TTx]

	// Key finds a message's natural key: consumer.JSONKey, consumer.HeaderKey for metadata, or any function. A watermill
	// message's UUID is made while publishing: published again, the same event has another one. So it is never taken by
	// default. Required.
	Key consumer.KeyFunc

	// Outbox gets what the handler produces, in the handler's transaction. It is the store of Store, in most programs.
	// Defaults to none: a handler that produces messages is refused.
	Outbox outbox.Writer[TTx]

	// Topic says where a produced message goes. Defaults to the topic with which the handler was added to the Router.
	// An empty one is refused.
	Topic func(in, produced *message.Message) string

	// OrderingKey says which produced messages must keep their order: those of one key. Defaults to metadata MetadataKey.
	OrderingKey func(produced *message.Message) string

	// Join uses the transaction that watermill-sql/v3's subscriber has taken the message in, so that effect, claim and
	// acknowledgement are one COMMIT. TTx must be *sql.Tx, and the database PostgreSQL. Defaults to a transaction of the
	// Store's own for each attempt, which is right for every broker.
	Join bool

	// Amend completes a message for what watermill has no field for: Key, Time, Position. Raw is the *message.Message.
	// It must say the same on every delivery. Defaults to what ToMessage fills in.
	Amend func(*consumer.Message)

	// Tenant, Window, Fingerprint, OnMismatch, Untimed, MaxAttempts, Backoff, ParkLimit and Trace are those of
	// consumer.Config, and default as they do.
	Tenant      consumer.KeyFunc
	Window      time.Duration
	Fingerprint consumer.FingerprintFunc
	OnMismatch  consumer.OnMismatch
	Untimed     dedup.Verdict
	MaxAttempts int
	Backoff     func(attempt int) time.Duration
	ParkLimit   consumer.ParkLimit
	Trace       *consumer.Trace

	// MaxWait is how long a message that failed waits before it is nacked, at the most: watermill cannot delay a
	// redelivery, so the delay of consumer.RetryError is spent here. Shorter than the broker's own limit, such as
	// AckDeadline of watermill-sql. Negative: it is nacked at once. Defaults to DefaultMaxWait.
	MaxWait time.Duration

	// Logger gets one line for each message given up on. Defaults to slog.Default().
	Logger *slog.Logger
}

// complete returns cfg with its defaults filled in, or an error that names the field at fault.
func (cfg Config[TTx]) complete() (Config[TTx], error) {
	if cfg.Key == nil {
		return cfg, fmt.Errorf("watermilltx: Config.Key is required: consumer.JSONKey, consumer.HeaderKey, or any function; " +
			"a message's UUID is new on every publication")
	}
	if cfg.Store == nil {
		return cfg, fmt.Errorf("watermilltx: Config.Store is required")
	}
	if cfg.Join {
		joined, ok := any(cfg.Store).(dedup.Store[*sql.Tx])
		if !ok {
			var tx TTx
			return cfg, fmt.Errorf("watermilltx: Config.Join: watermill-sql's transactions are of type *sql.Tx, and Config.Store's are %T", tx)
		}
		cfg.Store = any(joinable(joined)).(dedup.Store[TTx])
	}
	if cfg.Topic == nil {
		cfg.Topic = func(in, _ *message.Message) string { return message.PublishTopicFromCtx(in.Context()) }
	}
	if cfg.OrderingKey == nil {
		cfg.OrderingKey = func(produced *message.Message) string { return produced.Metadata.Get(MetadataKey) }
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = DefaultMaxWait
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg, nil
}

// consumer makes the one that does the work.
func (cfg Config[TTx]) consumer(handle consumer.Handler[TTx]) (*consumer.Consumer[TTx], error) {
	c, err := consumer.New(consumer.Config[TTx]{
		Name: cfg.Name, Store: cfg.Store, Key: cfg.Key, Handle: handle,
		Tenant: cfg.Tenant, Window: cfg.Window, Fingerprint: cfg.Fingerprint, OnMismatch: cfg.OnMismatch, Untimed: cfg.Untimed,
		MaxAttempts: cfg.MaxAttempts, Backoff: cfg.Backoff, ParkLimit: cfg.ParkLimit, Logger: cfg.Logger, Trace: cfg.Trace,
	})
	if err != nil {
		return nil, fmt.Errorf("watermilltx: %w", err)
	}
	return c, nil
}

// waiting sleeps for d, at most limit, or until ctx ends.
func waiting(ctx context.Context, d, limit time.Duration) {
	if d = min(d, limit); d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
