package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/deliver"
)

// SimulatedMember is a member of a group without a broker: its positions and its partition are the adapter's own.
type SimulatedMember struct {
	s       *positions
	p       *partition
	ctx     context.Context
	session context.Context
	end     context.CancelFunc
}

// NewSimulatedMember returns a member whose process ends with ctx. It calls wentBack when it says that the database
// went back.
func NewSimulatedMember(ctx context.Context, store driver.Positions, consumer string,
	wentBack func(error),
) *SimulatedMember {
	trace := &consumerdriver.SourceTrace{
		WentBack: func(_ context.Context, e consumerdriver.SourceEvent) { wentBack(e.Err) },
	}
	log := slog.New(slog.DiscardHandler)
	m := &member{
		cfg: SubscriberConfig{Group: "billing", MaxUnfinished: 10}, log: log, ctx: ctx, hooksCtx: ctx,
		events: deliver.NewObserver("kafka", "kafka", "orders", "Kafka", trace, log),
	}
	m.positions = &positions{
		m: m, store: store, consumer: consumer, begun: map[partitionID]*reading{}, reading: map[*partition]*reading{},
		trouble: m.events.NewPause("the database"),
	}
	return &SimulatedMember{s: m.positions, ctx: ctx}
}

type simulatedClaim struct{ sarama.ConsumerGroupClaim }

func (simulatedClaim) Topic() string    { return "orders" }
func (simulatedClaim) Partition() int32 { return 0 }

// Begin begins a session at a partition, where Kafka has f.
func (m *SimulatedMember) Begin(session sarama.ConsumerGroupSession, f Found) (at int64, err error) {
	m.session, m.end = m.s.sessionContext(m.ctx)
	r, _, err := m.s.beginAt(m.session, session, partitionID{"orders", 0}, "cluster", found{
		consumer: m.s.consumer, committed: f.Committed, metadata: f.Metadata, log: f.Log, now: time.Now(),
	})
	if err != nil {
		m.end()
		return 0, err
	}
	m.p = &partition{member: m.s.m, session: session, claim: simulatedClaim{}}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.session, m.s.reading[m.p] = session, r
	return r.Next, nil
}

// Read adds a message that was read, and returns what says later that it is finished.
func (m *SimulatedMember) Read(offset int64) (finish func()) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	tracked := m.p.offsets.deliver(&sarama.ConsumerMessage{Offset: offset})
	return func() { m.p.mark(tracked) }
}

// Write is what run does once per interval of the automatic commits, and Compare what it does each compareEvery.
func (m *SimulatedMember) Write() {
	m.s.ask(m.session, func(ctx context.Context) (bool, error) { return m.s.write(ctx, false, m.s.all()...) })
	m.s.commit()
}

// Compare looks whether the database still has what it had.
func (m *SimulatedMember) Compare() { m.s.ask(m.session, m.s.compare) }

// Ended returns why the session has ended; nil: it has not.
func (m *SimulatedMember) Ended() error { return context.Cause(m.session) }

// Finish ends the session in order.
func (m *SimulatedMember) Finish() {
	m.s.finish(m.p)
	m.end()
}
