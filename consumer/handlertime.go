package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/usercode"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// slowHandler is how long a handler runs before it is logged.
const slowHandler = time.Minute

// handle calls the handler for msgs, which were claimed under keys. Without a HandleBatch, msgs is a single message. If
// the handler calls runtime.Goexit, handle does not return.
func (cfg *Config[TTx]) handle(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	if cfg.HandleBatch != nil {
		ctx, end := withScopes(ctx, msgs, keys)
		defer end()
		return cfg.timed(ctx, keys[0], msgs, func(ctx context.Context) error { return cfg.HandleBatch(ctx, tx, msgs) })
	}
	ctx, end := outboxdriver.WithScope(ctx, seed(keys[0]))
	defer end()
	return cfg.timed(ctx, keys[0], msgs, func(ctx context.Context) error { return cfg.Handle(ctx, tx, msgs[0]) })
}

// timed calls handle, which does a handler's work on msgs, and applies Config.HandlerTimeout. A handler that exceeds it
// has failed whatever it returns, because it is unknown which of its statements the end of ctx has stopped.
func (cfg *Config[TTx]) timed(ctx context.Context, key dedup.Key, msgs []*Message,
	handle func(ctx context.Context) error,
) error {
	limit := cfg.HandlerTimeout
	var cause error
	if limit > 0 {
		cause = fmt.Errorf("%w of %v", ErrHandlerTimeout, limit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, cause)
		defer cancel()
		at, _ := ctx.Deadline()
		ctx = driver.WithHandlerDeadline(ctx, at)
	}
	began, logged := time.Now(), make(chan struct{})
	slow := time.AfterFunc(slowHandler, func() {
		defer close(logged)
		cfg.logSlow(ctx, key, msgs, began)
	})
	defer func() {
		if !slow.Stop() {
			<-logged
		}
	}()
	err := onThisGoroutine(func() error { return handle(ctx) })
	switch {
	case cause == nil || context.Cause(ctx) != cause: //nolint:errorlint // this very error, or ctx ended for another reason
		return err
	case err == nil:
		return fmt.Errorf("%w, and returned nil afterwards", cause)
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// onOwnGoroutine calls f, which is called name in errors, on a goroutine of its own. If f calls runtime.Goexit, only
// that goroutine ends, and the pass can still answer for its messages.
func onOwnGoroutine(name string, f func() error) (err error) {
	if ended := usercode.Run(func() { err = onThisGoroutine(f) }); ended != nil {
		return ended.Of("consumer: " + name)
	}
	return err
}

func (cfg *Config[TTx]) logSlow(ctx context.Context, key dedup.Key, msgs []*Message, began time.Time) {
	attrs := []any{
		"consumer", cfg.Name, "key", key.ID, "topic", msgs[0].Topic, "position", msgs[0].Position, "messages",
		len(msgs),
		"elapsed", time.Since(began).Round(time.Second),
	}
	if limit := cfg.HandlerTimeout; limit > 0 {
		attrs = append(attrs, "handler_timeout", limit)
	}
	if pool, ok := cfg.Store.(driver.PoolReporter); ok {
		if used, most := pool.PoolUse(); most > 0 && used >= most {
			attrs = append(attrs, "pool_connections", most,
				"hint", "all connections of the store's pool are in use: a handler that uses the pool instead of tx may wait for a connection forever")
		}
	}
	cfg.Logger.WarnContext(ctx, "a handler is still running", attrs...)
}
