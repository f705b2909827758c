package outboxtest

import (
	"errors"
	"slices"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// idCases are about outgoing IDs.
func idCases[TTx any]() []storeCase[TTx] {
	const hazard = "33: a re-execution enqueues the same IDs, and none is guessed"
	return []storeCase[TTx]{
		{name: "a message without ID is refused outside a handler's scope", hazard: hazard, run: noScope[TTx]},
		{
			name: "a re-execution enqueues the same IDs, whatever the bounds of its calls", hazard: hazard,
			run: sameIDs[TTx],
		},
	}
}

func noScope[TTx any](e *env[TTx]) {
	closed, _ := driver.WithScope(e.ctx, "")
	over, end := driver.WithScope(e.ctx, "seed")
	end()
	for _, ctx := range []struct {
		name string
		ctx  func() error
	}{
		{"outside a scope", func() error {
			return e.try(func(tx TTx) error { return e.Writer.Enqueue(e.ctx, tx, message("1", "k"), message("", "k")) })
		}},
		{"in a scope that was closed off", func() error {
			return e.try(func(tx TTx) error { return e.Writer.Enqueue(closed, tx, message("", "k"), message("1", "k")) })
		}},
		{"after the handler", func() error {
			return e.try(func(tx TTx) error { return e.Writer.Enqueue(over, tx, message("1", "k"), message("", "")) })
		}},
	} {
		if err := ctx.ctx(); !errors.Is(err, outbox.ErrNoID) {
			e.Fatalf("%s: error %v, want ErrNoID", ctx.name, err)
		}
	}
	e.session().quiet("each call was refused")
}

// try is a handler that swallows the error of fn.
func (e *env[TTx]) try(fn func(tx TTx) error) (err error) {
	_ = e.inTx(func(tx TTx) error {
		err = fn(tx)
		return nil
	})
	return err
}

func sameIDs[TTx any](e *env[TTx]) {
	var msgs []outbox.Message
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		m := message("", "k")
		m.Payload = []byte(name)
		msgs = append(msgs, m)
	}
	msgs[1].Topic, msgs[4].Topic = "another", "another"
	msgs[3].ID = "stated"
	s := e.session()

	execute := func(seed string, bounds ...int) (byPayload map[string]string) {
		ctx, end := driver.WithScope(e.ctx, seed)
		defer end()
		err := e.InTx(ctx, func(tx TTx) error {
			from := 0
			for _, to := range append(bounds, len(msgs)) {
				if err := e.Writer.Enqueue(ctx, tx, msgs[from:to]...); err != nil {
					return err
				}
				from = to
			}
			return nil
		})
		if err != nil {
			e.Fatalf("execute: %v", err)
		}
		byPayload = map[string]string{}
		for _, l := range s.drain(len(msgs)) {
			byPayload[string(l.Payload)] = l.ID
		}
		return byPayload
	}

	first := execute("seed")
	if first["d"] != "stated" {
		e.Errorf("the stated ID became %q", first["d"])
	}
	var distinct []string
	for _, id := range first {
		if id == "" || slices.Contains(distinct, id) {
			e.Fatalf("IDs of one execution are not distinct: %q", first)
		}
		distinct = append(distinct, id)
	}
	for _, bounds := range [][]int{{1, 2, 3, 4, 5}, {2}, {5}, {3, 3, 4}} {
		again := execute("seed", bounds...)
		for payload, id := range first {
			if again[payload] != id {
				e.Errorf("calls that end at %v: message %q has ID %q, and had %q before", bounds, payload,
					again[payload], id)
			}
		}
	}
	for payload, id := range execute("another seed") {
		if payload != "d" && first[payload] == id {
			e.Errorf("two handled messages gave message %q the same ID %q", payload, id)
		}
	}
}
