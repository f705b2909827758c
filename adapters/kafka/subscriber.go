package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
)

// Subscriber receives the messages of topics as a member of a consumer group, and commits the offsets of those that its
// Processor has handled.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	running atomic.Bool
}

// NewSubscriber returns a Subscriber, or an error that names all fields of cfg, and settings of its Client, that are at
// fault. It does not talk to the cluster.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if sourced, ok := cfg.Processor.(driver.Sourced); ok {
		for _, topic := range cfg.Topics {
			sourced.AddSource(fmt.Sprintf("kafka group %s, topic %s", cfg.Group, topic))
		}
	}
	return &Subscriber{cfg: cfg, log: cfg.Logger.With("group", cfg.Group)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, lets running handlers finish within the grace period,
// commits the offsets of handled messages and returns nil. Unfinished messages are delivered again, to the next owner
// of their partition.
//
// Before the first message it checks for problems that would appear later, and returns an error that names the problem:
// a missing topic, an unreachable broker, a Processor that cannot start or that forgets keys too soon. A
// consumer.Consumer whose database is away starts when the database is back. Later, Run returns an error when going on
// would lose messages, or when only a person can decide how to go on:
//
//   - The Processor gave up on a message and stored it nowhere.
//   - Kafka deleted messages before they were handled.
//   - The group refuses this member.
//   - The group's offset was committed for this consumer, and its database has no position for it: it is another
//     database, an older backup, or a table that was emptied.
//   - The database went back to before messages that an operator had skipped.
//
// Where the group's offset must be moved, the error has the command. Run waits out everything else, such as brokers that
// are away. A database that went back is no error: Run logs it, calls Trace.WentBack, and reads the lost messages again.
//
// Run may be called again after it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("kafka: Subscriber.Run is running already")
	}
	defer s.running.Store(false)

	connected, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	started := context.AfterFunc(ctx, cut) // before Run has started, there is nothing to drain
	m, err := s.join(ctx, connected)
	if err != nil || !started() {
		if m != nil {
			m.leave()
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return m.run(ctx, cut)
}

// join connects and checks. The member that it returns has not consumed yet. It may return both a member and an error.
func (s *Subscriber) join(ctx, connected context.Context) (*member, error) {
	client, err := s.connect(connected)
	if err != nil {
		return nil, err
	}
	m := &member{
		cfg: s.cfg, log: s.log, client: client, hooksCtx: context.WithoutCancel(ctx),
		events: deliver.NewObserver("kafka", "kafka", s.cfg.Group, "the cluster", s.cfg.Trace, s.log),
	}
	if err := s.checkTopics(client); err != nil {
		return m, err
	}
	// After the checks, because Start registers the Processor's window, and a window that is too short must not be
	// registered.
	if starter, ok := s.cfg.Processor.(driver.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			return m, fmt.Errorf("kafka: group %s does not start: %w", s.cfg.Group, err)
		}
	}
	m.positions = newPositions(m)
	if m.group, err = sarama.NewConsumerGroupFromClient(s.cfg.Group, client); err != nil {
		return m, fmt.Errorf("kafka: group %s: %w", s.cfg.Group, err)
	}
	return m, nil
}

// connect opens a client of our own. Its connections are closed when connected ends. Its settings are those of the
// user's client, except that it sends no messages, creates no topics, and returns its errors to us.
func (s *Subscriber) connect(connected context.Context) (sarama.Client, error) {
	cfg := *s.cfg.Client.Config()
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID = false, ""
	cfg.Net.MaxOpenRequests = max(cfg.Net.MaxOpenRequests, 5)
	cfg.Consumer.Return.Errors = true
	ownStrategies(&cfg)
	dialInto(connected, &cfg)

	addrs := addressesOf(s.cfg.Client)
	if len(addrs) == 0 {
		return nil, errors.New("kafka: SubscriberConfig.Client knows no broker: is it connected, and not closed?")
	}
	client, err := sarama.NewClient(addrs, &cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: connect to %v: %w", addrs, err)
	}
	return client, nil
}

// ownStrategies replaces the strategies that remember the last plan of their group. Shared with another Subscriber they
// would mix up two groups, with a data race.
func ownStrategies(cfg *sarama.Config) {
	own := func(s sarama.BalanceStrategy) sarama.BalanceStrategy {
		for _, fresh := range []sarama.BalanceStrategy{
			sarama.NewBalanceStrategySticky(),
			sarama.NewBalanceStrategyCooperativeSticky(),
		} {
			if reflect.TypeOf(s) == reflect.TypeOf(fresh) && s.Name() == fresh.Name() {
				return fresh
			}
		}
		return s
	}
	rebalance := &cfg.Consumer.Group.Rebalance
	if rebalance.Strategy != nil {
		rebalance.Strategy = own(rebalance.Strategy)
	}
	strategies := slices.Clone(rebalance.GroupStrategies)
	for i, s := range strategies {
		strategies[i] = own(s)
	}
	rebalance.GroupStrategies = strategies
}
