package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
)

// singles compares ways to handle one message in one transaction.
func (b *bench) singles(ctx context.Context) error {
	return b.handle(ctx, "singles", b.size.slot/5, 4*b.size.rounds, func(w *world, c consumers, old [][]*consumer.Message) []*handling {
		some := func() *consumer.Message { return old[rand.IntN(len(old))][rand.IntN(batchSize)] }
		processed := func(msg func(id string) *consumer.Message) func(context.Context, func() string) (int, error) {
			return each(func(ctx context.Context, id string) error { return c.plain.Process(ctx, msg(id)) })
		}
		return []*handling{
			{name: "bare", do: each(w.bare)},
			{name: "by hand", base: "bare", do: each(w.byHand)},
			{name: "least", base: "bare", do: each(w.least)},
			{name: "Process", base: "bare", do: each(process(c.plain))},
			{name: "Process, Pipeline", base: "bare", do: each(process(c.pipeline))},
			{name: "Process, Pipeline with ClaimLate", base: "bare", do: each(process(c.late))},
			{name: "Process, Attempt 2", base: "bare", do: processed(func(id string) *consumer.Message { return redelivered(message(id)) })},
			{
				name: "a duplicate", base: "by hand", repeats: true,
				do: processed(func(string) *consumer.Message { return some() }),
			},
			{
				name: "a duplicate, Attempt 2", base: "by hand", repeats: true,
				do: processed(func(string) *consumer.Message { return redelivered(some()) }),
			},
			{name: "least for a duplicate", base: "by hand", repeats: true, do: each(w.leastDuplicate)},
		}
	})
}

// batches compares ways to handle a hundred messages in one transaction.
func (b *bench) batches(ctx context.Context) error {
	return b.handle(ctx, "batches", b.size.slot, b.size.rounds, func(w *world, c consumers, old [][]*consumer.Message) []*handling {
		var next atomic.Int64
		return []*handling{
			{name: "by hand", do: each(w.byHand)},
			{name: "ProcessBatch, plain Handle", base: "by hand", do: hundred(c.plain)},
			{name: "ProcessBatch, Interleave", base: "by hand", do: hundred(c.interleaved)},
			{name: "ProcessBatch, Pipeline", base: "by hand", do: hundred(c.pipeline)},
			{name: "ProcessBatch, set-based", base: "by hand", do: hundred(c.set)},
			{name: "ProcessBatch, duplicates", base: "by hand", repeats: true, do: func(ctx context.Context, _ func() string) (int, error) {
				return batch(ctx, c.plain, old[next.Add(1)%int64(len(old))])
			}},
			{name: "least for duplicates", base: "by hand", repeats: true, do: func(ctx context.Context, _ func() string) (int, error) {
				return batchSize, w.leastDuplicates(ctx, old[next.Add(1)%int64(len(old))])
			}},
		}
	})
}

// handle measures the same ways under each condition.
func (b *bench) handle(ctx context.Context, name string, slot time.Duration, n int,
	ways func(*world, consumers, [][]*consumer.Message) []*handling,
) error {
	t := b.report.table(name, "messages/s")
	for _, column := range conditions {
		b.progress("%s, %s", name, column.name)
		err := b.server.inWorld(ctx, column.conns, column.far, func(ctx context.Context, w *world) error {
			c, err := w.inMemory()
			if err != nil {
				return err
			}
			old, err := w.handled(ctx, c)
			if err != nil {
				return err
			}
			if err := b.compare(ctx, w, t, column, slot, n, ways(w, c, old)); err != nil {
				return err
			}
			return w.audit(ctx, "before it was repeated, ProcessBatch", oldPlace, int64(len(old)*batchSize))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", column.name, err)
		}
	}
	return nil
}

// handled returns batches that c.plain has handled. There are more of them than connections, because calls that have
// the same messages wait for each other.
func (w *world) handled(ctx context.Context, c consumers) (old [][]*consumer.Message, err error) {
	for range 32 {
		msgs := messages(func() string { return w.id(oldPlace) }, batchSize)
		if _, err := batch(ctx, c.plain, msgs); err != nil {
			return nil, err
		}
		old = append(old, msgs)
	}
	return old, nil
}

// memory measures what handling a message allocates in this process, with the driver's share.
func (b *bench) memory(ctx context.Context) error {
	b.progress("memory")
	return b.server.inWorld(ctx, 1, false, func(ctx context.Context, w *world) error {
		c, err := w.inMemory()
		if err != nil {
			return err
		}
		hs := w.number([]*handling{
			{name: "bare", do: each(w.bare)},
			{name: "by hand", do: each(w.byHand)},
			{name: "Process", do: each(process(c.plain))},
			{name: "ProcessBatch, plain Handle", do: hundred(c.plain)},
			{name: "ProcessBatch, Interleave", do: hundred(c.interleaved)},
			{name: "ProcessBatch, Pipeline", do: hundred(c.pipeline)},
			{name: "ProcessBatch, set-based", do: hundred(c.set)},
		})
		t := b.report.table("memory", "bytes and allocations per message")
		for _, h := range hs {
			bytes, objects, err := h.allocates(ctx, 5*batchSize)
			if err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			t.put("bytes", h.name, bytes)
			t.put("allocations", h.name, objects)
		}
		return w.auditAll(ctx, hs)
	})
}

// allocates returns what n messages allocate each, after as many that are not counted.
func (h *handling) allocates(ctx context.Context, n int) (bytes, objects float64, err error) {
	var before, after runtime.MemStats
	for range 2 {
		runtime.ReadMemStats(&before)
		for done := 0; done < n; {
			m, err := h.run(ctx)
			if err != nil {
				return 0, 0, err
			}
			done += m
		}
		runtime.ReadMemStats(&after)
	}
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
		float64(after.Mallocs-before.Mallocs) / float64(n), nil
}
