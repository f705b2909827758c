package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
)

const batchSize = 100

// handling is a way to handle some messages on one connection. id returns a new ID.
type handling struct {
	name, base string
	do         func(ctx context.Context, id func() string) (messages int, err error)
	// the messages have been handled before: there must be no effect
	repeats bool
	measure func(ctx context.Context) (float64, error) // instead of do

	id      func() string
	handled atomic.Int64 // new messages
}

// number gives the messages of each way IDs of their own.
func (w *world) number(hs []*handling) []*handling {
	for i, h := range hs {
		h.id = func() string { return w.id(i) }
	}
	return hs
}

func (h *handling) run(ctx context.Context) (int, error) {
	n, err := h.do(ctx, h.id)
	if err == nil && !h.repeats {
		h.handled.Add(int64(n))
	}
	return n, err
}

// compare measures ways to handle messages as a column of a table, and audits the ledger.
func (b *bench) compare(ctx context.Context, w *world, t *table, column condition, slot time.Duration, n int,
	hs []*handling,
) error {
	ways := make([]way, len(hs))
	for i, h := range w.number(hs) {
		ways[i] = way{h.name, h.base, h.measure}
		if h.do != nil {
			ways[i].measure = func(ctx context.Context) (float64, error) { return rate(ctx, column.conns, slot, h.run) }
		}
	}
	figures, err := rounds(ctx, n, true, ways)
	if err != nil {
		return err
	}
	t.add(column.name, ways, figures)
	return w.auditAll(ctx, hs)
}

func (w *world) auditAll(ctx context.Context, hs []*handling) error {
	for i, h := range hs {
		if err := w.audit(ctx, h.name, i, h.handled.Load()); err != nil {
			return err
		}
	}
	return nil
}

// each handles one message.
func each(do func(ctx context.Context, id string) error) func(context.Context, func() string) (int, error) {
	return func(ctx context.Context, id func() string) (int, error) { return 1, do(ctx, id()) }
}

// process is Process with a new message.
func process(c *consumer.Consumer[pgx.Tx]) func(context.Context, string) error {
	return func(ctx context.Context, id string) error { return c.Process(ctx, message(id)) }
}

// hundred handles a batch.
func hundred(c driver.BatchProcessor) func(context.Context, func() string) (int, error) {
	return func(ctx context.Context, id func() string) (int, error) {
		return batch(ctx, c, messages(id, batchSize))
	}
}

func messages(id func() string, n int) []*consumer.Message {
	msgs := make([]*consumer.Message, n)
	for i := range msgs {
		msgs[i] = message(id())
	}
	return msgs
}

func message(id string) *consumer.Message {
	return &consumer.Message{
		ID: id, Payload: []byte(`{"order_id":"` + id + `","amount":1}`), Time: time.Now(),
		Attempt: 1,
	}
}

// consumers are those of txonce whose ways are compared.
type consumers struct{ plain, interleaved, pipeline, late, set *consumer.Consumer[pgx.Tx] }

func (w *world) consumers(key consumer.KeyFunc, id func(*consumer.Message) string) (c consumers, err error) {
	handle := func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		_, err := tx.Exec(ctx, insertEffect, id(m))
		return err
	}
	pipeline := pgxstore.Pipeline(func(_ context.Context, b *pgx.Batch, m *consumer.Message) error {
		b.Queue(insertEffect, id(m))
		return nil
	})
	set := func(ctx context.Context, tx pgx.Tx, msgs []*consumer.Message) error {
		ids := make([]string, len(msgs))
		for i, m := range msgs {
			ids[i] = id(m)
		}
		_, err := tx.Exec(ctx, `INSERT INTO ledger (id, amount) SELECT id, 1 FROM unnest($1::text[]) AS id`, ids)
		return err
	}
	for _, to := range []struct {
		c   **consumer.Consumer[pgx.Tx]
		cfg consumer.Config[pgx.Tx]
	}{
		{&c.plain, consumer.Config[pgx.Tx]{Name: "plain", Handle: handle}},
		{&c.interleaved, consumer.Config[pgx.Tx]{Name: "interleaved", Handle: handle, Interleave: true}},
		{&c.pipeline, consumer.Config[pgx.Tx]{Name: "pipeline", HandleBatch: pipeline}},
		{&c.late, consumer.Config[pgx.Tx]{Name: "late", HandleBatch: pipeline, ClaimLate: true}},
		{&c.set, consumer.Config[pgx.Tx]{Name: "set", HandleBatch: set}},
	} {
		to.cfg.Store, to.cfg.Key = w.store, key
		if *to.c, err = consumer.New(to.cfg); err != nil {
			return c, err
		}
	}
	return c, nil
}

// inMemory returns consumers of messages that the benchmark makes.
func (w *world) inMemory() (consumers, error) {
	return w.consumers(consumer.MessageID, func(m *consumer.Message) string { return m.ID })
}

// batch processes messages in one call, and returns the first error.
func batch(ctx context.Context, c driver.BatchProcessor, msgs []*consumer.Message) (int, error) {
	for _, err := range c.ProcessBatch(ctx, msgs) {
		if err != nil {
			return 0, err
		}
	}
	return len(msgs), nil
}

// bare is the transaction of an effect without any deduplication: three round trips.
func (w *world) bare(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertEffect, id)
		return err
	})
}

const claimByHand = `INSERT INTO by_hand (consumer, id) VALUES ('hand', $1) ON CONFLICT DO NOTHING`

// byHand is BEGIN, claim, effect, COMMIT as people write it: four round trips.
func (w *world) byHand(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, claimByHand, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, insertEffect, id)
		return err
	})
}

// least has the simplest claim in one round trip with BEGIN: nothing that claims before it handles can be faster.
func (w *world) least(ctx context.Context, id string) error {
	return w.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue(claimByHand, id)
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

// leastBatch is the least for a batch whose messages each have a statement of their own.
func (w *world) leastBatch(ctx context.Context, ids []string) error {
	return w.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		claim := &pgx.Batch{}
		claim.BeginTx(pgx.TxOptions{})
		claim.Queue(`INSERT INTO by_hand (consumer, id) SELECT 'hand', id FROM unnest($1::text[]) AS id ON CONFLICT DO NOTHING`, ids)
		results := conn.SendBatch(ctx, claim)
		tx := results.Tx()
		if err := results.Close(); err != nil {
			return err
		}
		effects := &pgx.Batch{}
		for _, id := range ids {
			effects.Queue(insertEffect, id)
		}
		effects.Queue(`commit`)
		return tx.SendBatch(ctx, effects).Close()
	})
}

// leastDuplicate is one SELECT: nothing that asks the database can be faster.
func (w *world) leastDuplicate(ctx context.Context, _ string) error {
	return w.pool.QueryRow(ctx, `SELECT count(*) FROM by_hand WHERE consumer = 'hand' AND id = $1`,
		prefix(1)).Scan(new(int))
}

// leastDuplicates is one SELECT that compares the keys and the contents of a batch: nothing that asks the database can
// be faster.
func (w *world) leastDuplicates(ctx context.Context, msgs []*consumer.Message) error {
	keys, fingerprints := make([][16]byte, len(msgs)), make([]int64, len(msgs))
	for i, m := range msgs {
		keys[i] = dedup.Key{Consumer: "plain", ID: m.ID}.Hash()
		fingerprints[i] = dedup.FingerprintOf(m.Payload).Int64()
	}
	var found int
	err := w.pool.QueryRow(ctx, `SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS r(key, fingerprint)
		JOIN LATERAL (SELECT fingerprint FROM processed_messages WHERE key = r.key LIMIT 1) AS p ON p.fingerprint = r.fingerprint`, keys, fingerprints).Scan(&found)
	if err == nil && found != len(msgs) {
		err = fmt.Errorf("%d of %d duplicates were found", found, len(msgs))
	}
	return err
}

// redelivered is the message as a broker delivers it for the second time.
func redelivered(m *consumer.Message) *consumer.Message {
	second := *m
	second.Attempt = 2
	return &second
}
