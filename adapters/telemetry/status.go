package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/txonce/txonce/consumer/ops"
)

// Limits of questions to the database while metrics are collected. A scrape of Prometheus ends after 10 s unless
// configured otherwise.
const (
	statusEvery   = 10 * time.Second
	statusTimeout = 3 * time.Second
	logEvery      = time.Minute
)

// snapshots asks for the status of the database, at most once in statusEvery. It is safe for concurrent use.
type snapshots struct {
	reader ops.StatusReader // nil: none
	logger *slog.Logger

	mu     sync.Mutex
	status ops.Status
	err    error
	asked  time.Time
	logged time.Time
}

func newSnapshots(reader ops.StatusReader, logger *slog.Logger) *snapshots {
	return &snapshots{reader: reader, logger: logger}
}

// get returns the status, and false if there is none: its gauges are then absent, because an old value looks healthy.
func (s *snapshots) get(ctx context.Context) (ops.Status, bool) {
	if s.reader == nil {
		return ops.Status{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.asked.IsZero() || now.Sub(s.asked) >= statusEvery {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		s.status, s.err = s.reader.Status(ctx)
		cancel()
		s.asked = now
		if s.err != nil && (s.logged.IsZero() || now.Sub(s.logged) >= logEvery) {
			s.logged = now
			s.logger.WarnContext(ctx, "telemetry: the database does not answer the query for its gauges, which are absent until it does", "error", s.err)
		}
	}
	return s.status, s.err == nil
}

// observeStatus exports the gauges of the database.
func (t *Telemetry) observeStatus(ctx context.Context, o metric.Observer) {
	status, ok := t.status.get(ctx)
	if !ok {
		return
	}
	m := t.meters
	lag := status.Sweep.Lag
	redeliveries := t.redeliveries()
	for i := range status.Consumers {
		c := &status.Consumers[i]
		name := attrConsumer.String(c.Name)
		for j := range c.Letters {
			l := &c.Letters[j]
			o.ObserveInt64(m.deadLetters, int64(l.Count),
				metric.WithAttributes(name, attrCause.String(string(l.Cause))))
		}
		var shortest, longest time.Duration
		for _, w := range c.Windows {
			if w.UsedUntil.After(status.Now) && (shortest == 0 || w.Window < shortest) { // others were used before
				shortest = w.Window
			}
			longest = max(longest, status.Now.Sub(w.FirstRun)-w.Window)
		}
		if redelivery := redeliveries[c.Name]; redelivery > 0 && shortest > 0 {
			o.ObserveFloat64(m.windowMargin, (shortest - redelivery).Seconds(), metric.WithAttributes(name))
		}
		if status.Sweep.LastPass.IsZero() { // no sweeper has ever run: keys wait since the first of them expired
			lag = max(lag, longest)
		}
	}
	o.ObserveFloat64(m.sweepLag, lag.Seconds())
	observeOutbox(o, m, &status)
}

// observeOutbox exports the gauges of the outbox. An outbox without messages has one series with an empty topic, so
// that it differs from an outbox that is not seen.
func observeOutbox(o metric.Observer, m *meters, status *ops.Status) {
	type numbers struct {
		pending, parked int64
		oldest          time.Duration
	}
	topics := map[string]numbers{}
	names := make([]string, 0, len(status.Outbox.Topics))
	for topic := range status.Outbox.Topics {
		names = append(names, topic)
	}
	slices.SortFunc(names, func(a, b string) int { // those that wait longest keep their names
		return cmp.Or(cmp.Compare(status.Outbox.Topics[b].PendingAge, status.Outbox.Topics[a].PendingAge),
			cmp.Compare(a, b))
	})
	for i, topic := range names {
		stats := status.Outbox.Topics[topic]
		if i >= maxTopics {
			topic = otherTopic
		}
		n := topics[topic]
		topics[topic] = numbers{
			n.pending + stats.Pending, n.parked + stats.Parked + stats.Waiting,
			max(n.oldest, stats.PendingAge),
		}
	}
	if len(topics) == 0 {
		topics[""] = numbers{
			status.Outbox.Pending, status.Outbox.Parked + status.Outbox.Waiting,
			status.Outbox.PendingAge,
		}
	}
	for topic, n := range topics {
		attrs := metric.WithAttributes(attrTopic.String(topic))
		o.ObserveInt64(m.outboxPending, n.pending, attrs)
		o.ObserveInt64(m.outboxParked, n.parked, attrs)
		o.ObserveFloat64(m.outboxOldest, n.oldest.Seconds(), attrs)
	}
}

// redeliveries returns ConsumerConfig.Redelivery of each consumer.
func (t *Telemetry) redeliveries() map[string]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]time.Duration, len(t.consumers))
	for name, c := range t.consumers {
		all[name] = c.cfg.Redelivery
	}
	return all
}

// observePools exports the gauges of connection pools.
func (t *Telemetry) observePools(o metric.Observer) {
	for name, stat := range t.cfg.Pools {
		used, most := stat()
		o.ObserveInt64(t.meters.connectionCount, int64(used), metric.WithAttributes(attrPool.String(name),
			attrPoolState.String("used")))
		o.ObserveInt64(t.meters.connectionMax, int64(most), metric.WithAttributes(attrPool.String(name)))
	}
}

// Audit is what an audit of one consumer found, see [Telemetry.Audited]. The fields have the names of those of
// audit.Report in consumer/ops/audit.
type Audit struct {
	Checked int64 // claims that were compared
	// messages that are neither claimed nor parked, claims without an effect, outbox messages that are not on their
	// topic
	Lost     int64
	Doubled  int64 // claims with more than one effect
	Orphaned int64 // effects without a claim
	Repeated int64 // outbox messages that are on their topic more than once
}

// Audited exports the findings of an audit of consumer, until the next one. It does nothing on a nil Telemetry.
func (t *Telemetry) Audited(consumer string, a Audit) {
	if t != nil {
		t.audits.set(consumer, a)
	}
}

// audits has the latest audit of each consumer. The zero value is ready for use. It is safe for concurrent use.
type audits struct {
	mu     sync.Mutex
	latest map[string]audited
}

type audited struct {
	Audit
	at time.Time
}

func (a *audits) set(consumer string, audit Audit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest == nil {
		a.latest = map[string]audited{}
	}
	a.latest[consumer] = audited{audit, time.Now()}
}

func (a *audits) observe(o metric.Observer, m *meters) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for consumer, found := range a.latest {
		attrs := metric.WithAttributes(attrConsumer.String(consumer))
		o.ObserveInt64(m.auditChecked, found.Checked, attrs)
		o.ObserveInt64(m.auditLost, found.Lost, attrs)
		o.ObserveInt64(m.auditDoubled, found.Doubled, attrs)
		o.ObserveInt64(m.auditOrphaned, found.Orphaned, attrs)
		o.ObserveInt64(m.auditRepeated, found.Repeated, attrs)
		o.ObserveFloat64(m.auditAge, time.Since(found.at).Seconds(), attrs)
	}
}
