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
	"github.com/txonce/txonce/internal/test/testlog"
)

// Each failed attempt that is followed by another one has a line, and the last one that of the dead letter.
func TestFailedAttemptsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testlog.Log{}
		c := newConsumer(t, config{
			Store: consumertest.NewStore(), Logger: log.Logger(),
			Backoff: func(int) time.Duration { return 5 * time.Second },
			Handle:  func(context.Context, tx, *consumer.Message) error { return errors.New("the bank is closed") },
		})
		if err := c.Process(t.Context(), msg("1", "x")); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"attempt=1 ", "attempt=2 ", "message parked"} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%d lines with %q, want 1", n, want)
			}
		}
		if n := strings.Count(log.String(), "the bank is closed"); n != 3 {
			t.Errorf("%d lines about 3 attempts", n)
		}
	})
}

// When every message fails, the log has one line a second about attempts, which counts the others.
func TestFailedAttemptsDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testlog.Log{}
		c := newConsumer(t, config{
			Store: consumertest.NewStore(), Logger: log.Logger(),
			Handle: func(context.Context, tx, *consumer.Message) error { return errors.New("a broken deployment") },
		})
		for i := range 101 {
			if i == 100 {
				<-time.After(time.Second)
			}
			c.ProcessBatch(t.Context(), []*consumer.Message{msg(fmt.Sprint(i), "x")})
		}
		if n := strings.Count(log.String(), "a broken deployment"); n != 2 || !strings.Contains(log.String(),
			"failures_without_a_line=99") {
			t.Errorf("%d lines, want 2 that count the other 99 attempts:\n%s", n, log.String())
		}
	})
}
