package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// reader handles all messages of a broker until ctx ends, and counts them.
type reader func(ctx context.Context, w *world, br broker, t *tally) error

// brokers compares the same subscribers with and without deduplication, from a broker's backlog to committed effects.
func (b *bench) brokers(ctx context.Context) error {
	t := b.report.table("brokers", "messages/s")
	for _, k := range kinds {
		b.progress("brokers, %s", k.name)
		n := k.messages / b.size.backlog
		ways := []way{
			b.fromBroker("without deduplication", "", k, n, false, func(ctx context.Context, w *world, br broker, t *tally) error {
				return subscribe(ctx, br, t, repeating{w})
			}),
			b.fromBroker("ProcessBatch, plain Handle", "without deduplication", k, n, false,
				reading(func(c consumers) processor { return c.plain })),
		}
		figures, err := rounds(ctx, b.size.backlogRounds, false, ways)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		t.add(k.name, ways, figures)
	}
	return nil
}

// kafka compares with a consumer group by hand that claims each message in its transaction.
func (b *bench) kafka(ctx context.Context) error {
	t := b.report.table("kafka", "messages/s")
	k := kinds[0]
	few, many := k.messages/8/b.size.backlog, k.messages/b.size.backlog
	for _, column := range []condition{{"loopback", 0, false}, {"+0.5 ms", 0, true}} {
		b.progress("kafka, %s", column.name)
		ways := []way{
			b.fromBroker("by hand", "", k, few, column.far, byHand),
			b.fromBroker("least", "by hand", k, many, column.far, leastBatches),
			b.fromBroker("ProcessBatch, plain Handle", "by hand", k, many/2, column.far,
				reading(func(c consumers) processor { return c.plain })),
			b.fromBroker("ProcessBatch, Interleave", "by hand", k, many, column.far,
				reading(func(c consumers) processor { return c.interleaved })),
			b.fromBroker("ProcessBatch, Pipeline", "by hand", k, many, column.far,
				reading(func(c consumers) processor { return c.pipeline })),
			b.fromBroker("ProcessBatch, set-based", "by hand", k, many, column.far,
				reading(func(c consumers) processor { return c.set })),
		}
		figures, err := rounds(ctx, b.size.backlogRounds, false, ways)
		if err != nil {
			return fmt.Errorf("%s: %w", column.name, err)
		}
		t.add(column.name, ways, figures)
	}
	return nil
}

// fromBroker is a way that handles a backlog of n messages, which it makes first.
func (b *bench) fromBroker(name, base string, k kind, n int, far bool, read reader) way {
	return way{name, base, func(ctx context.Context) (perSecond float64, err error) {
		const conns = 2 * concurrency * 8 // each of Kafka's partitions has its own batch
		err = b.server.inWorld(ctx, conns, far, func(ctx context.Context, w *world) (err error) {
			br, err := k.open(ctx, w.schema)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, br.close(context.WithoutCancel(ctx))) }()
			if err := br.fill(ctx, n); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
			t := newTally(n)
			perSecond, err = drain(ctx, t, func(ctx context.Context) error { return read(ctx, w, br, t) })
			if err != nil {
				return err
			}
			return w.audit(ctx, name, 0, int64(n))
		})
		return perSecond, err
	}}
}

// processor is a consumer.Processor that also takes batches.
type processor interface {
	consumer.Processor
	driver.BatchProcessor
}

func reading(which func(consumers) processor) reader {
	return func(ctx context.Context, w *world, br broker, t *tally) error {
		c, err := w.consumers(consumer.JSONKey("id"), func(m *consumer.Message) string { return idOf(m.Payload) })
		if err != nil {
			return err
		}
		return subscribe(ctx, br, t, which(c))
	}
}

func subscribe(ctx context.Context, br broker, t *tally, p processor) error {
	s, err := br.subscriber(counting{p, t})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// counting counts the messages that are answered.
type counting struct {
	processor
	tally *tally
}

// ProcessBatch implements driver.BatchProcessor.
func (c counting) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	errs := c.processor.ProcessBatch(ctx, msgs)
	n := 0
	for i := range msgs {
		if errs == nil || errs[i] == nil {
			n++
		}
	}
	c.tally.add(n)
	return errs
}

// repeating handles a batch in one transaction without claims, so a repeated delivery has its effect again.
type repeating struct{ world *world }

// Process implements consumer.Processor.
func (r repeating) Process(ctx context.Context, msg *consumer.Message) error {
	return r.ProcessBatch(ctx, []*consumer.Message{msg})[0]
}

// ProcessBatch implements driver.BatchProcessor.
func (r repeating) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	err := pgx.BeginFunc(ctx, r.world.pool, func(tx pgx.Tx) error {
		for _, msg := range msgs {
			if _, err := tx.Exec(ctx, insertEffect, idOf(msg.Payload)); err != nil {
				return err
			}
		}
		return nil
	})
	errs := make([]error, len(msgs))
	for i := range errs {
		if err != nil {
			errs[i] = &consumer.RetryError{Err: err, After: 50 * time.Millisecond}
		}
	}
	return errs
}

// byHand is a consumer group as people write it: one transaction per message, in each partition one message after the
// other.
func byHand(ctx context.Context, w *world, br broker, t *tally) error {
	return consume(ctx, br, handler{w, t})
}

// consume runs a consumer group until ctx ends.
func consume(ctx context.Context, br broker, h sarama.ConsumerGroupHandler) error {
	topic := br.(*kafkaTopic)
	cfg := kafka.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup(kafkaAddresses(), topic.name, cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil && err == nil {
		err = group.Consume(ctx, []string{topic.name}, h)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, group.Close())
}

type handler struct {
	world *world
	tally *tally
}

// Setup implements sarama.ConsumerGroupHandler.
func (handler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup implements sarama.ConsumerGroupHandler.
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		if err := h.world.byHand(s.Context(), idOf(msg.Value)); err != nil {
			return err
		}
		s.MarkMessage(msg, "")
		h.tally.add(1)
	}
	return nil
}

// leastBatches claims the messages that wait, at most a hundred, in one round trip with BEGIN, and sends their effects
// in one round trip with COMMIT. It checks nothing: nothing that claims a batch before it handles it can be faster.
func leastBatches(ctx context.Context, w *world, br broker, t *tally) error {
	return consume(ctx, br, batchHandler{handler{w, t}})
}

type batchHandler struct{ handler }

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (h batchHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		ids := []string{idOf(msg.Value)}
		for len(ids) < maxBatch && len(claim.Messages()) > 0 {
			msg = <-claim.Messages()
			ids = append(ids, idOf(msg.Value))
		}
		if err := h.world.leastBatch(s.Context(), ids); err != nil {
			return err
		}
		s.MarkMessage(msg, "")
		h.tally.add(len(ids))
	}
	return nil
}
