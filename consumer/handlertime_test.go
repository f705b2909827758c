package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// stuck is a handler that waits for the end of ctx for some payloads, and then does what the payload says.
func stuck(returns func(ctx context.Context, tx tx) error) func(ctx context.Context, tx tx, m *consumer.Message) error {
	return func(ctx context.Context, tx tx, m *consumer.Message) error {
		if string(m.Payload) != "stuck" {
			return tx.Add(m.ID)
		}
		<-ctx.Done()
		return returns(ctx, tx)
	}
}

// A handler that exceeds HandlerTimeout has failed. That counts, and in the end only its message is parked, with the
// limit as the error.
func TestHandlerTimeout(t *testing.T) {
	const limit = 10 * time.Second
	for _, tc := range []struct {
		name    string
		returns func(ctx context.Context, tx tx) error
	}{
		{"its ctx's error", func(ctx context.Context, _ tx) error { return fmt.Errorf("query: %w", ctx.Err()) }},
		{"the cause", func(ctx context.Context, _ tx) error { return context.Cause(ctx) }},
		{"what looks like the database's fault", func(_ context.Context, tx tx) error { return tx.Fail(errFault) }},
		{"nil", func(context.Context, tx) error { return nil }},
		{"a panic", func(_ context.Context, tx tx) error { panic(tx.Fail(errFault)) }},
	} {
		for _, how := range []string{"Process", "ProcessBatch", "HandleBatch", "MessageError"} {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, handle := &faulty{Store: consumertest.NewStore()}, stuck(tc.returns)
					cfg := config{Store: store, Handle: handle, HandlerTimeout: limit, MaxAttempts: 2}
					if how == "HandleBatch" || how == "MessageError" {
						cfg.Handle = nil
						cfg.HandleBatch = func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
							for _, m := range msgs {
								if err := handle(ctx, tx, m); err != nil || ctx.Err() != nil {
									if err != nil && how == "MessageError" {
										err = &consumer.MessageError{Message: msgs[len(msgs)-1], Err: err}
									}
									return err
								}
							}
							return nil
						}
					}
					c := newConsumer(t, cfg)
					msgs := []*consumer.Message{msg("good 0", "x"), msg("stuck", "stuck"), msg("good 1", "x")}
					began := time.Now()
					if how == "Process" {
						ctx, cancel := context.WithTimeout(t.Context(), 20*limit)
						defer cancel()
						for _, m := range msgs {
							if err := c.Process(ctx, m); err != nil {
								t.Errorf("Process(%s): %v", m.ID, err)
							}
						}
					} else if left := redeliver(t.Context(), c, msgs, 10, time.Hour); len(left) > 0 {
						t.Errorf("%d messages are left", len(left))
					}
					if took := time.Since(began); took > 8*limit {
						t.Errorf("took %v", took)
					}
					wantCount(t, store.Database(), "good 0", 1)
					wantCount(t, store.Database(), "good 1", 1)
					wantCount(t, store.Database(), "stuck", 0)
					found := letters(t, c)
					if len(found) != 1 || found[0].Message.ID != "stuck" || found[0].Message.Attempt != 2 ||
						!strings.Contains(found[0].Error, "Config.HandlerTimeout of 10s") {
						t.Errorf("letters: %+v", found)
					}
				})
			})
		}
	}
}

func TestHandlersWithinTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &logs{}, consumertest.NewStore()
		c := newConsumer(t, config{Store: store, Logger: log.logger(), HandlerTimeout: time.Minute, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Minute {
				t.Errorf("deadline %v", deadline)
			}
			<-time.After(59 * time.Second)
			return tx.Add(m.ID)
		}})
		process(t, c, msg("1", "x"))
		wantCount(t, store.Database(), "1", 1)
		if n := log.lines("still running"); n != 0 {
			t.Errorf("%d lines about a handler that is not slow", n)
		}
	})
}

// A shutdown before the limit counts no attempt.
func TestAShutdownIsNoHandlerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := newConsumer(t, config{
			Store: consumertest.NewStore(), HandlerTimeout: time.Minute, MaxAttempts: 1,
			Handle: stuck(func(ctx context.Context, _ tx) error { return ctx.Err() }),
		})
		if err := c.Process(ctx, msg("1", "stuck")); errors.Is(err, consumer.ErrHandlerTimeout) {
			t.Error(err)
		} else {
			wantRetry(t, err, true)
		}
	})
}

// exhausted is a store whose pool has one connection, which the handler's transaction holds.
type exhausted struct{ *consumertest.Store }

func (exhausted) PoolUse() (inUse, most int) { return 1, 1 }

// A handler that runs for more than a minute is logged once for each run, with a hint if the pool is exhausted.
func TestASlowHandlerIsLogged(t *testing.T) {
	for _, tc := range []struct {
		name  string
		store consumer.Config[tx]
		hint  int
	}{
		{"pool unknown", config{Store: consumertest.NewStore()}, 0},
		{"pool exhausted", config{Store: exhausted{consumertest.NewStore()}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, cfg := &logs{}, tc.store
				cfg.Logger = log.logger()
				cfg.Handle = func(_ context.Context, tx tx, m *consumer.Message) error {
					<-time.After(8 * time.Minute)
					return tx.Add(m.ID)
				}
				c := newConsumer(t, cfg)
				process(t, c, msg("1", "x"))
				lines := log.lines("a handler is still running")
				if lines != 1 || log.lines("key=1") != 1 || log.lines("position=orders/0/1") != 1 ||
					log.lines("elapsed=1m0s") != 1 {
					t.Errorf("want one line with message, key and time:\n%s", log.buf.String())
				}
				if n := log.lines("uses the pool instead of tx"); n != tc.hint {
					t.Errorf("%d hints, want %d:\n%s", n, tc.hint, log.buf.String())
				}
			})
		})
	}
}
