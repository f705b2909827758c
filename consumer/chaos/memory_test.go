package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// writing writes to all that a message refers to, and keeps how the messages were when it got them.
type writing struct {
	mu  sync.Mutex
	got []string
}

func (w *writing) Process(_ context.Context, m *consumer.Message) error {
	got := fmt.Sprint(string(m.Payload), m.Headers, m.Aliases, m.Fingerprint[0], m.Attempt)
	for i := range m.Payload {
		m.Payload[i] = '!'
	}
	maps.DeleteFunc(m.Headers, func(string, string) bool { return true })
	m.Aliases[0], m.Fingerprint[0], m.Attempt = "!", 9, 9
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, got)
	return nil
}

// A copy is what the broker would deliver again, whatever the first delivery's Processor has written to its message.
// The race detector finds memory that two deliveries at the same time share.
func TestACopyHasMemoryOfItsOwn(t *testing.T) {
	for seed := range uint64(40) {
		w := &writing{}
		p := wrap(t, w, chaos.Config{Seed: seed + 1, Duplicate: 1})
		if err := p.Process(t.Context(), &consumer.Message{
			ID: "m", Payload: []byte("order"), Headers: map[string]string{"currency": "EUR"}, Aliases: []string{"a"},
			Fingerprint: &dedup.Fingerprint{1}, Attempt: 1,
		}); err != nil {
			t.Fatal(err)
		}
		if len(w.got) != 2 || w.got[0] != w.got[1] {
			t.Fatalf("seed %d: the two deliveries are %q", seed+1, w.got)
		}
	}
}

func fine(context.Context, tx, *consumer.Message) error { return nil }

// keeping returns the same slice for each call.
type keeping struct {
	consumers
	errs []error
}

func (k *keeping) ProcessBatch(context.Context, []*consumer.Message) []error { return k.errs }

// A Processor's own slice of answers stays as it is.
func TestAnswersAreCopied(t *testing.T) {
	k := &keeping{consumers: newConsumer(t, consumertest.NewStore(), fine), errs: make([]error, 3)}
	lost := 0
	p := wrap(t, k, chaos.Config{Seed: 1, LoseAck: .5})
	for range 20 {
		errs, _ := deliver(t.Context(), p, []*consumer.Message{{ID: "a"}, {ID: "b"}, {ID: "c"}})
		if errors.Is(errors.Join(errs...), chaos.ErrAckLost) {
			lost++
		}
		if err := errors.Join(k.errs...); err != nil {
			t.Fatalf("chaos wrote to the answers of the Processor: %v", err)
		}
	}
	if lost == 0 {
		t.Error("no acknowledgement is lost")
	}
}
