package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// slowHandler is how long a handler runs before a line says so.
const slowHandler = time.Minute

// timed calls handle, which is a handler's work on msgs, within Config.HandlerTimeout. A handler that outlasts it has failed,
// whatever it returns: nobody knows which of its statements ctx has ended.
func (c *Consumer[TTx]) timed(ctx context.Context, key dedup.Key, msgs []*Message, handle func(ctx context.Context) error) error {
	limit := c.cfg.HandlerTimeout
	var cause error
	if limit > 0 {
		cause = fmt.Errorf("%w of %v", ErrHandlerTimeout, limit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, cause)
		defer cancel()
	}
	began, logged := time.Now(), make(chan struct{})
	slow := time.AfterFunc(slowHandler, func() {
		defer close(logged)
		c.logSlow(ctx, key, msgs, began)
	})
	defer func() {
		if !slow.Stop() {
			<-logged
		}
	}()
	err := apart(func() error { return handle(ctx) })
	switch {
	case cause == nil || context.Cause(ctx) != cause: //nolint:errorlint // it is this very one, or ctx ended for another reason
		return err
	case err == nil:
		return fmt.Errorf("%w, and returned nil afterwards", cause)
	}
	return fmt.Errorf("%w: %w", cause, err)
}

var errGoexit = errors.New("consumer: the handler ended its goroutine instead of returning: it called runtime.Goexit, or FailNow of a test")

// apart calls f on a goroutine of its own, which f may end: otherwise that would end the whole pass, and nobody would answer for its messages.
func apart(f func() error) (err error) {
	err = errGoexit
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer recovered(&err)
		err = f()
	}()
	<-done
	return err
}

func (c *Consumer[TTx]) logSlow(ctx context.Context, key dedup.Key, msgs []*Message, began time.Time) {
	attrs := []any{
		"consumer", c.cfg.Name, "key", key.ID, "topic", msgs[0].Topic, "position", msgs[0].Position, "messages", len(msgs),
		"elapsed", time.Since(began).Round(time.Second),
	}
	if limit := c.cfg.HandlerTimeout; limit > 0 {
		attrs = append(attrs, "handler_timeout", limit)
	}
	if pool, ok := c.cfg.Store.(dedup.PoolReporter); ok {
		if used, most := pool.PoolUse(); most > 0 && used >= most {
			attrs = append(attrs, "pool_connections", most,
				"hint", "all connections of the store's pool are in use: a handler that uses the pool instead of tx waits for a connection that nobody gives back")
		}
	}
	c.cfg.Logger.WarnContext(ctx, "a handler is still running", attrs...)
}
