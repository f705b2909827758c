package consumer_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A goroutine that a handler left behind writes to the headers for as long as the message is parked. That must not
// reach a map that the consumer reads: "concurrent map iteration and map write" ends the process, and the race detector
// fails this test.
func TestHeadersAreTheHandlersOwn(t *testing.T) {
	for name, batch := range map[string]bool{"Handle": false, "HandleBatch": true} {
		t.Run(name, func(t *testing.T) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			leave := func(m *consumer.Message) {
				begun := make(chan struct{})
				go func() {
					defer close(stopped)
					m.Headers["late"] = "0"
					close(begun)
					for i := 1; ; i++ {
						select {
						case <-stop:
							return
						default:
							m.Headers["late"] = strconv.Itoa(i)
						}
					}
				}()
				<-begun
			}
			cfg := config{Store: consumertest.NewStore(), MaxAttempts: 1, Backoff: noBackoff}
			if batch {
				cfg.HandleBatch = func(_ context.Context, _ tx, msgs []*consumer.Message) error {
					leave(msgs[0])
					return consumer.Permanent(errors.New("no"))
				}
			} else {
				cfg.Handle = func(_ context.Context, _ tx, m *consumer.Message) error {
					leave(m)
					return consumer.Permanent(errors.New("no"))
				}
			}
			c := newConsumer(t, cfg)
			m := msg("1", "x")
			m.Headers = map[string]string{"own": "1"}
			process(t, c, m)
			close(stop)
			<-stopped
			got := letters(t, c)
			if len(got) != 1 || got[0].Message.Headers["own"] != "1" || got[0].Message.Headers["late"] != "" ||
				len(m.Headers) != 1 {
				t.Errorf("%d letters: %v; the caller's headers: %v", len(got), got, m.Headers)
			}
		})
	}
}
