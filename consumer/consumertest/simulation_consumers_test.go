package consumertest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// billing is the first consumer: it has one effect for each message, and enqueues one message if there are relays.
func billing(relays bool) func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
	return func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
		s, store := draw(p.Rand()), p.Store()
		return s.billing.configure(consumer.Config[tx]{
			Name: "billing", Store: store, Key: consumer.MessageID, MaxAttempts: s.maxAttempts,
			MaxPerTransaction: s.perTransaction, Backoff: p.Backoff, Logger: slog.New(slog.DiscardHandler),
		}, func(ctx context.Context, tx tx, m *consumer.Message) error {
			kind := m.Headers["kind"]
			if kind == ignored {
				return nil
			}
			if err := tx.Add("charge of " + m.ID); err != nil {
				return err
			}
			if err := record(ctx, tx, m); err != nil {
				return err
			}
			switch {
			case kind == poison:
				return consumer.Permanent(errPoison)
			case kind == flaky && p.Shared(newOnce).(*once).first(m.ID):
				return errors.New("not yet")
			case !relays:
				return nil
			}
			return store.Enqueue(ctx, tx, outbox.Message{
				Topic: "charges", OrderingKey: s.outgoingKey, Payload: m.Payload, NotBefore: s.notBefore(),
			})
		})
	}
}

const history = "history of "

// record adds m to the history of its ordering key, which shows the order of the effects, also within a transaction.
func record(ctx context.Context, tx tx, m *consumer.Message) error {
	key := m.Headers["key"]
	if key == "" {
		return nil
	}
	return tx.Update(ctx, history+key, func(old any) any {
		ids, _ := old.([]string)
		return append(slices.Clip(ids), m.ID)
	})
}

// inOrder checks that the effects of an ordering key are in the order of the messages. One that may have been parked
// after its first failure may be late.
func inOrder(w *consumertest.World) error {
	at, late := map[string]int{}, map[string]bool{}
	for i, m := range slices.Backward(w.Delivered()) {
		at[m.ID] = i
		late[m.ID] = m.Headers["kind"] == flaky && draw(w.Rand()).maxAttempts == 1
	}
	for name, ids := range w.Database().Values(history) {
		ids := slices.DeleteFunc(slices.Clone(ids.([]string)), func(id string) bool { return late[id] })
		if !slices.IsSortedFunc(ids, func(a, b string) int { return at[a] - at[b] }) {
			return fmt.Errorf("the %s is %v, which is not the order of the deliveries", name, ids)
		}
	}
	return nil
}

// accounting is the second consumer.
func accounting(p *consumertest.Process) (*consumer.Consumer[tx], error) {
	return draw(p.Rand()).accounting.configure(consumer.Config[tx]{
		Name: "accounting", Store: p.Store(), Key: consumer.MessageID, Backoff: p.Backoff,
		Logger: slog.New(slog.DiscardHandler),
	}, func(ctx context.Context, tx tx, m *consumer.Message) error {
		if err := p.Step(ctx, "think about "+string(m.Payload)); err != nil {
			return err
		}
		return tx.Add("entry of " + string(m.Payload))
	})
}

// charges counts the effects of m. That of a message that the handler drops is its claim.
func charges(w *consumertest.World, m *consumer.Message) int {
	n := w.Database().Count("charge of " + m.ID)
	if m.Headers["kind"] == ignored && w.Database().Claimed(billingKey(m)) {
		n++
	}
	return n
}

func billingKey(m *consumer.Message) dedup.Key { return dedup.Key{Consumer: "billing", ID: m.ID} }

// exact checks what is due for each kind of message, and each outgoing message's ID and effect.
func exact(relays bool) func(w *consumertest.World) error {
	return func(w *consumertest.World) error {
		ids := map[string]string{} // of outgoing messages by payload
		for _, m := range w.Published() {
			if before, found := ids[string(m.Payload)]; found && before != m.ID {
				return fmt.Errorf("%s was published as %s and as %s", m.Payload, before, m.ID)
			}
			ids[string(m.Payload)] = m.ID
		}
		letters := map[string]int{}
		for _, l := range w.Letters() {
			if l.Cause == observe.CauseCrashed && l.Record.Key.ID != "" && w.Database().Claimed(l.Record.Key) {
				continue // of a trial whose process ended, and another delivery was processed
			}
			letters[cmp.Or(l.Record.Key.ID, l.Message.Position)]++
		}
		for i, m := range w.Delivered() {
			effects, parked := charges(w, &m), letters[m.ID]
			switch m.Headers["kind"] {
			case keyless: // each delivery is a message of its own
				if n := letters[fmt.Sprint("in/", i)]; effects != 0 || n != 1 {
					return fmt.Errorf("%s has no key, and has %d effects and %d dead letters, want 0 and 1", m.Payload, effects, n)
				}
			case good, ignored:
				if effects != 1 || parked != 0 {
					return fmt.Errorf("%s has %d effects and %d dead letters, want 1 and 0", m.ID, effects, parked)
				}
			case flaky: // with one attempt it is parked, or done by another delivery
				if draw(w.Rand()).maxAttempts > 1 && (effects != 1 || parked != 0) {
					return fmt.Errorf("%s fails once, and has %d effects and %d dead letters, want 1 and 0", m.ID, effects, parked)
				}
			case poison:
				if discarded := consumertest.Discarded(w, billingKey(&m)); effects != 0 || parked != 1 && !discarded {
					return fmt.Errorf("%s has %d effects and %d dead letters, want 0 and 1", m.ID, effects, parked)
				}
			}
			due := w.Database().Count("charge of " + m.ID)
			if entries := w.Database().Count("entry of " + m.ID); relays && entries != due {
				return fmt.Errorf("%s has %d effects, and %d at the end of the pipeline", m.ID, due, entries)
			}
		}
		return inOrder(w)
	}
}
