package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

var errAway = errors.New("the database is away")

// away is a store whose database does not answer.
type away struct{ *consumertest.Store }

func (away) InTx(context.Context, []dedup.Record, func(*deduptest.Tx, []dedup.Claim) error) error {
	return errAway
}

func (away) Retryable(error) bool { return true }

// A consumer that is closed while it is paused does not keep its process from being ready: another one may have taken
// its place.
func TestHealthOfAClosedConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ops.NewHealth()
		c, err := consumer.New(consumer.Config[*deduptest.Tx]{
			Name: "billing", Store: away{consumertest.NewStore()}, Key: consumer.MessageID, Trace: h.Trace(),
			Logger: slog.New(slog.DiscardHandler),
			Handle: func(context.Context, *deduptest.Tx, *consumer.Message) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Process(ctx, &consumer.Message{ID: "1"}); err == nil {
			t.Error("processed")
		}
		if n := len(h.Reasons()); n != 1 {
			t.Errorf("%d reasons while the database is away, want 1", n)
		}
		c.Close()
		if reasons := h.Reasons(); len(reasons) != 0 {
			t.Errorf("after Close: %v", reasons)
		}
	})
}
