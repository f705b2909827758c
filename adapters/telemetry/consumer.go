package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// ConsumerConfig describes a consumer to its metrics and spans.
type ConsumerConfig struct {
	Name   string // of the consumer, as in consumer.Config. Required
	Group  string // Kafka's consumer group. Empty: Name
	System string // empty: Config.System

	// Topics are the topics or queues that the consumer handles. The series of the first eight are exported from the
	// start with 0, so that an alert on increase() notices the first dead letter. Other topics appear with their first
	// message.
	Topics []string

	// Redelivery is how long the source may deliver a message again, such as a topic's retention. It is compared with
	// the window of the consumer in the database for the gauge txonce.window.margin, which needs Config.Status. 0:
	// there is no such gauge.
	Redelivery time.Duration
}

func (c *ConsumerConfig) attributes(more ...attribute.KeyValue) []attribute.KeyValue {
	attrs := append(more, attrGroup.String(c.Group))
	if c.System != "" {
		attrs = append(attrs, attrSystem.String(c.System))
	}
	return attrs
}

// Consumer returns the hooks for the consumer of that name: consumer.Config.Trace. Calling it again with the same name
// returns the hooks of the first call. A nil Telemetry returns nil.
func (t *Telemetry) Consumer(cfg ConsumerConfig) *consumer.Trace {
	if t == nil {
		return nil
	}
	if cfg.Group == "" {
		cfg.Group = cfg.Name
	}
	if cfg.System == "" {
		cfg.System = t.cfg.System
	}
	t.mu.Lock()
	c, known := t.consumers[cfg.Name]
	if !known {
		c = t.newConsumer(cfg)
		t.consumers[cfg.Name] = c
	}
	t.mu.Unlock()
	hooks := &consumer.Trace{}
	if t.meters != nil {
		for _, cause := range []observe.Cause{observe.CauseDatabase, observe.CauseBudget} {
			t.pauses.born(attrConsumer, cfg.Name, cause)
		}
		hooks = hooks.Then(&consumer.Trace{
			Start: c.count, Attempt: c.measure, Done: c.done,
			Paused: t.pauses.begin(attrConsumer, cfg.Name), Resumed: t.pauses.end(attrConsumer, cfg.Name),
			WentBack: t.losses.of(cfg.Name),
		})
	}
	if t.tracer != nil {
		hooks = hooks.Then(&consumer.Trace{
			Start: c.startSpan, Attempt: c.attemptSpan, Parking: c.parking,
			Done: c.endSpan,
		})
	}
	return hooks
}

// consumerTrace are the series of one consumer.
type consumerTrace struct {
	t        *Telemetry
	cfg      ConsumerConfig
	topics   *limited[*topicCells]
	spans    *limited[*spanOptions]
	attempts [][2]cell // by result; 1: one of the messages was delivered before
	inFlight atomic.Int64
	workers  atomic.Int64
	stuck    stuckKeys

	consumerOnly []metric.ObserveOption
	transactions [][]metric.RecordOption // by result
	claims       map[verdict][]metric.RecordOption
}

// verdict is what the claims of a transaction showed.
type verdict string

const (
	verdictFirst     verdict = "first"     // at least one message is new
	verdictDuplicate verdict = "duplicate" // none is
	verdictInFlight  verdict = "in_flight" // another transaction held a key until the wait ended
)

func (t *Telemetry) newConsumer(cfg ConsumerConfig) *consumerTrace {
	c := &consumerTrace{t: t, cfg: cfg, claims: map[verdict][]metric.RecordOption{}}
	name := attrConsumer.String(cfg.Name)
	c.consumerOnly = []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(name))}
	c.attempts = make([][2]cell, len(resultIndex.words))
	for i, result := range resultIndex.words {
		for retry := range 2 {
			c.attempts[i][retry].born = true
			c.attempts[i][retry].options = []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
				name, attrResult.String(string(result)), attrRetry.Bool(retry == 1)))}
		}
		c.transactions = append(c.transactions,
			[]metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(name, attrResult.String(string(result))))})
	}
	for _, v := range []verdict{verdictFirst, verdictDuplicate, verdictInFlight} {
		c.claims[v] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(name, attrVerdict.String(string(v))))}
	}
	born := cfg.Topics[:min(len(cfg.Topics), bornTopics)]
	remaining := map[string]bool{}
	for _, topic := range born {
		remaining[topic] = true
	}
	c.topics = newLimited(func(topic string) *topicCells { return newTopicCells(&c.cfg, topic, remaining[topic]) })
	for _, topic := range cfg.Topics {
		c.topics.of(topic)
	}
	c.spans = newLimited(func(topic string) *spanOptions { return newSpanOptions(&c.cfg, topic) })
	return c
}

func (c *consumerTrace) count(ctx context.Context, d *consumer.Delivery) context.Context {
	if len(d.Messages) > 0 {
		c.inFlight.Add(int64(len(d.Messages)))
		c.workers.Add(1)
	}
	return ctx
}

func (c *consumerTrace) measure(ctx context.Context, _ *consumer.Delivery, a consumer.Attempt) {
	i := resultIndex.of(a.Result)
	if i < 0 {
		return
	}
	retry := 0
	if a.Retry {
		retry = 1
	}
	c.attempts[i][retry].n.Add(1)
	c.t.meters.transactionDuration.Record(ctx, a.Took.Seconds(), c.transactions[i]...)
	claim, answer := a.Claim, verdictDuplicate
	switch {
	case a.Claim == 0 && a.Cause == observe.CauseInFlight:
		claim, answer = a.Took, verdictInFlight
	case a.Claim == 0: // the database did not answer
		return
	case a.Ran > 0:
		answer = verdictFirst
	}
	c.t.meters.claimDuration.Record(ctx, claim.Seconds(), c.claims[answer]...)
}

func (c *consumerTrace) done(ctx context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
	if len(d.Messages) == 0 {
		return
	}
	c.inFlight.Add(-int64(len(d.Messages)))
	c.workers.Add(-1)
	var failed observe.Cause // the first one
	topic := d.Messages[0].Topic
	cells := c.topics.of(topic)
	common := cells
	for i := range outcomes {
		o, m := &outcomes[i], d.Messages[i]
		if m.Topic != topic {
			topic, common = m.Topic, nil
			cells = c.topics.of(topic)
		}
		cells.count(o.Outcome, o.Cause)
		c.stuck.note(o)
		if failed == "" && o.Outcome != observe.Processed && o.Outcome != observe.Duplicate {
			failed = o.Cause
		}
	}
	if common == nil {
		common = c.topics.of(mixedTopics)
	}
	common.duration(ctx, c.t.meters.processDuration, failed, time.Since(d.Began).Seconds())
}

func (c *consumerTrace) observe(o metric.Observer, m *meters) {
	for _, topic := range c.topics.all() {
		for i := range topic.deliveries {
			for j := range topic.deliveries[i] {
				topic.deliveries[i][j].observe(o, m.deliveries)
			}
		}
	}
	for i := range c.attempts {
		for retry := range c.attempts[i] {
			c.attempts[i][retry].observe(o, m.attempts)
		}
	}
	o.ObserveInt64(m.inFlight, c.inFlight.Load(), c.consumerOnly...)
	o.ObserveInt64(m.workers, c.workers.Load(), c.consumerOnly...)
	o.ObserveInt64(m.keysStuck, c.stuck.count(time.Now()), c.consumerOnly...)
}
