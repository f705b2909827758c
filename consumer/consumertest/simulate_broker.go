package consumertest

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/sim"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

var errRefused = errors.New("the broker refuses it")

// processPublisher is the broker as a relay's process sees it.
type processPublisher struct{ p *Process }

// Publish implements outbox.Publisher.
func (b processPublisher) Publish(_ context.Context, msgs []outbox.Message) []error {
	p, about := b.p, aboutMessages(msgs)
	n := len(msgs)
	p.of.checkHold(p, msgs)
	f := p.sim.At("publish", about)
	switch f.Action {
	case sim.Gone:
		return all(errCut, n)
	case "refused":
		return all(errRefused, n)
	case "unavailable":
		return all(&outbox.UnavailableError{Err: errRefused}, n)
	case "crash before":
		p.sim.Crash()
		return all(errCut, n)
	}
	if f.Action == "only the last arrives" {
		msgs = msgs[len(msgs)-1:]
	}
	for _, m := range msgs {
		p.of.arrive(p, m)
	}
	switch f.Action {
	case "only the last arrives":
		return all(errCut, n)
	case "crash after":
		p.sim.Crash()
		return all(errCut, n)
	case "answer lost":
		return all(errCut, n)
	}
	return nil
}

func all(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func aboutMessages(msgs []outbox.Message) string {
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		ids[i] = m.ID
	}
	return strings.Join(ids, " ")
}

func aboutLeased(leased []driver.Leased) string {
	ids := make([]string, len(leased))
	for i, l := range leased {
		ids[i] = l.ID
	}
	return strings.Join(ids, " ")
}

func aboutOutcomes(outcomes []driver.Outcome) string {
	said := make([]string, len(outcomes))
	for i, o := range outcomes {
		said[i] = o.ID + " " + [...]string{"returned", "sent", "deferred", "parked"}[o.Verdict]
	}
	return strings.Join(said, ", ")
}

// arrive is the broker's side of Publish: the message is there, and is delivered.
func (w *world) arrive(p *Process, m outbox.Message) {
	p.sim.Note("%s arrives at the broker", m.ID)
	w.mu.Lock()
	w.arrived[m.ID]++
	first := w.arrived[m.ID] == 1
	w.published = append(w.published, m)
	seq, _ := strconv.ParseInt(m.Headers[outbox.HeaderSequence], 10, 64)
	last := w.latest[m.OrderingKey]
	if first && m.OrderingKey != "" {
		w.latest[m.OrderingKey] = max(last, seq)
	}
	w.mu.Unlock()
	if first && m.OrderingKey != "" && seq < last {
		w.sim.Break("%s publishes %s of key %q, which was committed before one that has arrived", p.Name(), m.ID,
			m.OrderingKey)
	}
	if w.s.Next != nil {
		w.out.add(consumer.Message{ID: m.ID, OrderingKey: m.OrderingKey, Payload: m.Payload, Headers: m.Headers})
	}
}
