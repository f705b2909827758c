package webhook_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/internal/test/testlog"
)

// With the Key of another source, each event would be parked, and the sender would be told that it was handled.
func TestAConsumerThatFindsNoKeyIsRefused(t *testing.T) {
	for name, key := range map[string]consumer.KeyFunc{
		"JSONKey": consumer.JSONKey("order_id"), "HeaderKey": consumer.HeaderKey("order"),
		"a panic": func(*consumer.Message) (string, error) { panic("no order") },
	} {
		t.Run(name, func(t *testing.T) {
			s, store, log := newShop(), consumertest.NewStore(), &testlog.Log{}
			r := newReceiver(t, webhook.Config{
				Verifier: s, Logger: log.Logger(), Processor: billing(t, consumer.Config[tx]{Store: store, Key: key}),
			})
			for _, id := range []string{"1", "2", "1"} {
				if got := s.status(t, r, shopEvent{ID: id, Type: "paid", Created: time.Now()}); got != 503 {
					t.Errorf("event %s: status %d, want 503", id, got)
				}
			}
			if !strings.Contains(log.String(), "set it to consumer.MessageID") {
				t.Errorf("the log does not say what to do: %s", log.String())
			}
			letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
			if err != nil || len(letters) != 0 {
				t.Errorf("parked: %v, %v", letters, err)
			}
		})
	}
}

// An event without a key is parked, also the first one after a start, if the Key shows that it is right for this
// source: by doing without a payload, or else by having found a key in an event.
func TestAnEventWithoutAKeyIsParked(t *testing.T) {
	for name, test := range map[string]struct {
		key  consumer.KeyFunc
		want []int // for ping, paid, ping
	}{
		"from the start": {func(msg *consumer.Message) (string, error) { return msg.ID, nil }, []int{200, 200, 200}},
		"after an event with a key": {func(msg *consumer.Message) (string, error) {
			if len(msg.Payload) == 0 {
				return "", errors.New("no payload")
			}
			return msg.ID, nil
		}, []int{503, 200, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{
				Store: store, Key: func(msg *consumer.Message) (string, error) {
					if msg.Topic == "ping" {
						return "", nil
					}
					return test.key(msg)
				},
			})})
			ping, paid := shopEvent{ID: "1", Type: "ping", Created: time.Now()},
				shopEvent{ID: "2", Type: "paid", Created: time.Now()}
			for i, want := range test.want {
				if got := s.status(t, r, []shopEvent{ping, paid, ping}[i]); got != want {
					t.Errorf("delivery %d: status %d, want %d", i, got, want)
				}
			}
			letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
			if err != nil || len(letters) != 1 {
				t.Errorf("parked: %v, %v", letters, err)
			}
		})
	}
}
