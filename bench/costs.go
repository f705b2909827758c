package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// costs measures the processor time of one message, in this process and in PostgreSQL. Each way does what the one
// before it does, and more. On a busy machine these figures change less than rates do.
func (b *bench) costs(ctx context.Context) error {
	t := b.report.table("costs", "µs of processor time per message")
	for _, column := range loopback {
		b.progress("costs, %s", column.name)
		err := b.server.inWorld(ctx, column.conns, false, func(ctx context.Context, w *world) error {
			c, err := w.inMemory()
			if err != nil {
				return err
			}
			old, err := w.handled(ctx, c)
			if err != nil {
				return err
			}
			var next atomic.Int64
			repeated := func() []*consumer.Message { return old[next.Add(1)%int64(len(old))] }
			hs := w.number([]*handling{
				{name: "bare", do: each(w.bare)},
				{name: "by hand", do: each(w.byHand)},
				{name: "least", do: each(w.least)},
				{name: "the statements of Process", do: each(w.statements())},
				{name: "InTx", do: each(w.inTx)},
				{name: "Process", do: each(process(c.plain))},
				{name: "Process, Pipeline", do: each(process(c.pipeline))},
				{name: "Process, Pipeline with ClaimLate", do: each(process(c.late))},
				{name: "least for a batch", do: func(ctx context.Context, id func() string) (int, error) {
					ids := make([]string, batchSize)
					for i := range ids {
						ids[i] = id()
					}
					return batchSize, w.leastBatch(ctx, ids)
				}},
				{name: "ProcessBatch, Pipeline", do: hundred(c.pipeline)},
				{name: "ProcessBatch, set-based", do: hundred(c.set)},
				{name: "least for duplicates", repeats: true, do: func(ctx context.Context, _ func() string) (int, error) {
					return batchSize, w.leastDuplicates(ctx, repeated())
				}},
				{name: "ProcessBatch, duplicates", repeats: true, do: func(ctx context.Context, _ func() string) (int, error) {
					return batch(ctx, c.plain, repeated())
				}},
			})
			here, there, err := w.spend(ctx, hs, column.conns, b.size.slot, b.size.rounds)
			if err != nil {
				return err
			}
			ways := make([]way, len(hs))
			for i, h := range hs {
				ways[i] = way{name: h.name}
			}
			t.add("in this process, "+column.name, ways, here)
			t.add("in PostgreSQL, "+column.name, ways, there)
			return w.auditAll(ctx, hs)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", column.name, err)
		}
	}
	return nil
}

// spend returns the processor time per message of each way, in this process and in PostgreSQL.
func (w *world) spend(ctx context.Context, hs []*handling, conns int, slot time.Duration,
	n int,
) (here, there series, err error) {
	here, there = series{}, series{}
	for round := range n + 1 {
		for _, i := range rand.Perm(len(hs)) {
			h := hs[i]
			var messages atomic.Int64
			before, err := w.spent(ctx)
			if err != nil {
				return nil, nil, err
			}
			if _, err := rate(ctx, conns, slot, func(ctx context.Context) (int, error) {
				n, err := h.run(ctx)
				messages.Add(int64(n))
				return n, err
			}); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", h.name, err)
			}
			after, err := w.spent(ctx)
			if err != nil {
				return nil, nil, err
			}
			if round > 0 { // the first one prepares statements
				n := float64(messages.Load())
				here[h.name] = append(here[h.name], float64((after.here-before.here).Nanoseconds())/1000/n)
				there[h.name] = append(there[h.name], float64((after.there-before.there).Nanoseconds())/1000/n)
			}
		}
	}
	return here, there, nil
}

// processorTime is what was used since this process and the server began.
type processorTime struct{ here, there time.Duration }

func (w *world) spent(ctx context.Context) (p processorTime, err error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return p, err
	}
	p.here = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	p.there, err = w.server.spent()
	return p, err
}

// statements sends what Process sends, without what checks it: nothing that sends these statements can be faster.
func (w *world) statements() func(ctx context.Context, id string) error {
	insertOne := dialect.NewPostgres(w.schema).InsertOne
	return func(ctx context.Context, id string) error { return w.send(ctx, insertOne, id) }
}

func (w *world) send(ctx context.Context, insertOne, id string) error {
	key := dedup.Key{Consumer: "statements", ID: id}
	return w.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		b.Queue(insertOne, pgtype.UUID{Bytes: key.Hash(), Valid: true}, pgtype.Int8{Int64: 1, Valid: true},
			key.Consumer, nil, key.ID,
			pgtype.Timestamptz{Time: time.Now(), Valid: true},
			pgtype.Float8{Float64: dedup.DefaultWindow.Seconds(), Valid: true}, "300000ms")
		results := conn.SendBatch(ctx, b)
		tx := results.Tx()
		if err := results.Close(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertEffect, id); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// inTx is what Process does in the store.
func (w *world) inTx(ctx context.Context, id string) error {
	m := message(id)
	rec := dedup.Record{
		Key: dedup.Key{Consumer: "in tx", ID: id}, Fingerprint: dedup.FingerprintOf(m.Payload),
		Time: m.Time,
	}
	return w.store.InTx(ctx, []dedup.Record{rec}, func(tx pgx.Tx, _ []dedup.Claim) error {
		_, err := tx.Exec(ctx, insertEffect, id)
		return err
	})
}
