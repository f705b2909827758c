package webhook_test

import (
	"log/slog"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

func TestKnownContent(t *testing.T) {
	t.Run("inline", func(t *testing.T) {
		store := consumertest.NewStore()
		c := billing(t, consumer.Config[tx]{Store: store})
		testReplays(t, env{c, store.Database().Count, func() []consumer.DeadLetter { return letters(t, c) }})
	})
	t.Run("stored and forwarded", func(t *testing.T) {
		store := consumertest.NewStore()
		out := newPending(store)
		in := newInbox(t, store, out)
		testReplays(t, env{in, func(id string) (n int) {
			for _, m := range out.committed() {
				if m.Headers[webhook.HeaderID] == id {
					n++
				}
			}
			return n
		}, func() []consumer.DeadLetter { return letters(t, in.Consumer()) }})
	})
	t.Run("a person decides", func(t *testing.T) {
		h, store := newHub(), consumertest.NewStore()
		out := newPending(store)
		in := newInbox(t, store, out)
		r := newReceiver(t, webhook.Config{Verifier: h, Processor: in, Logger: slog.New(slog.DiscardHandler)})
		for _, id := range []string{"a", "b"} {
			wantStatus(t, do(r, h.request(t.Context(), id, "push", `{}`)), 200)
		}
		if ran, err := in.Consumer().Replay(t.Context(), letters(t, in.Consumer())[0],
			consumer.Replay{AsNew: true}); !ran || err != nil {
			t.Errorf("Replay: %v, %v", ran, err)
		}
		if n := len(out.committed()); n != 2 {
			t.Errorf("%d events forwarded, want both", n)
		}
	})
}
