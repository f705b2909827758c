package outboxtest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// A harness is a function that makes an outbox, and the features of the store.
func ExampleHarness() {
	h := outboxtest.Harness[*outboxtest.Tx]{
		New: func(_ *testing.T, o outboxtest.Options) outboxtest.Outbox[*outboxtest.Tx] {
			m := &outboxtest.Memory{KeepSent: o.KeepSent}
			return outboxtest.Outbox[*outboxtest.Tx]{
				Writer: m, Queue: m, Operations: m, InTx: m.InTx,
				SetBack: m.SetBack, LockOrderingKey: m.LockOrderingKey,
			}
		},
		Features: outboxtest.Features{
			LateSequence: true,
			DoesNotApply: map[string]string{"confirmed messages are kept for their time": "they never are"},
		},
	}
	_ = func(t *testing.T) { outboxtest.TestStore(t, h) } // TestOutbox of the store's own package
	fmt.Println(len(h.Features.DoesNotApply), "case does not apply")
	// Output: 1 case does not apply
}

// The suite compares a publisher's answers with the messages that Read finds in the broker.
func ExamplePublisherHarness() {
	broker := new(outboxtest.FakePublisher)
	h := outboxtest.PublisherHarness{
		New:   func(*testing.T) outbox.Publisher { return broker },
		Topic: func(t *testing.T) string { return t.Name() },
		Read: func(_ *testing.T, topic string, _ int) (msgs []outbox.Message) {
			for _, p := range broker.Published() {
				if p.Topic == topic {
					msgs = append(msgs, p.Message)
				}
			}
			return msgs
		},
		Unsafe: []outboxtest.Unsafe{{
			Setting: "RequiredAcks",
			New:     func(*testing.T) error { return errors.New("kafka: Producer.RequiredAcks must be WaitForAll") },
		}},
		Features: outboxtest.PublisherFeatures{DoesNotApply: map[string]string{
			"a binary key arrives": "keys of this broker are text",
		}},
	}
	_ = func(t *testing.T) { outboxtest.TestPublisher(t, h) } // TestPublisher of the adapter's own package
	fmt.Println(len(h.Unsafe), "setting is unsafe")
	// Output: 1 setting is unsafe
}
