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

	"github.com/txonce/txonce/consumer"
)

// Subscriber receives the messages of topics as a member of a consumer group, and acknowledges what its Processor has
// finished.
type Subscriber struct {
	cfg     SubscriberConfig
	batches consumer.BatchProcessor // nil: Processor takes one at a time
	log     *slog.Logger
	running atomic.Bool
}

// NewSubscriber checks cfg and the settings of its Client. It does not talk to the cluster.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if sourced, ok := cfg.Processor.(consumer.Sourced); ok {
		for _, topic := range cfg.Topics {
			sourced.AddSource(fmt.Sprintf("kafka group %s, topic %s", cfg.Group, topic))
		}
	}
	batches, _ := cfg.Processor.(consumer.BatchProcessor)
	return &Subscriber{cfg: cfg, batches: batches, log: cfg.Logger.With("group", cfg.Group)}, nil
}

// Run receives until ctx ends. Then it takes in nothing more, lets running handlers finish within the grace period,
// commits what is finished and returns nil. What is not finished is delivered again, to whoever gets the partition.
//
// Before the first message it checks what would go wrong later, and returns an error that names it: a missing topic, an
// unreachable broker, a Processor that cannot start or forgets too soon. A consumer.Consumer whose database is away starts
// when that is back. Later it returns an error when going on
// would lose messages: when the Processor gave up on one and kept it nowhere, when messages were deleted before they
// were handled, when the group refuses this member. Everything else, such as brokers that are away, it waits out.
//
// Run may be called again when it has returned, not before.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("kafka: Subscriber.Run is running already")
	}
	defer s.running.Store(false)

	life, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die()
	hurried := context.AfterFunc(ctx, die) // while starting there is nothing to drain
	m, err := s.join(ctx, life)
	if err != nil || !hurried() {
		if m != nil {
			m.leave()
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return m.run(ctx, die)
}

// join connects and checks; the member it returns has not consumed yet. It may return both a member and an error.
func (s *Subscriber) join(ctx, life context.Context) (*member, error) {
	client, err := s.connect(life)
	if err != nil {
		return nil, err
	}
	m := &member{Subscriber: s, client: client}
	if err := s.checkTopics(client); err != nil {
		return m, err
	}
	// After the checks: a start registers the Processor's window, and one that is too short must not be registered.
	if starter, ok := s.cfg.Processor.(consumer.Starter); ok {
		if err := starter.Start(ctx); err != nil {
			return m, fmt.Errorf("kafka: group %s does not start: %w", s.cfg.Group, err)
		}
	}
	if m.group, err = sarama.NewConsumerGroupFromClient(s.cfg.Group, client); err != nil {
		return m, fmt.Errorf("kafka: group %s: %w", s.cfg.Group, err)
	}
	return m, nil
}

// connect opens a client of our own, which ends with life. Its settings are those of the user's, but for what has no
// meaning here: it sends no messages, makes no topics, and returns its errors to us.
func (s *Subscriber) connect(life context.Context) (sarama.Client, error) {
	cfg := *s.cfg.Client.Config()
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID = false, ""
	cfg.Net.MaxOpenRequests = max(cfg.Net.MaxOpenRequests, 5)
	cfg.Consumer.Return.Errors = true
	ownStrategies(&cfg)
	dialInto(life, &cfg)

	var addrs []string
	for _, b := range s.cfg.Client.Brokers() {
		addrs = append(addrs, b.Addr())
	}
	if len(addrs) == 0 {
		return nil, errors.New("kafka: SubscriberConfig.Client knows no broker: is it connected, and not closed?")
	}
	client, err := sarama.NewClient(addrs, &cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: connect to %v: %w", addrs, err)
	}
	return client, nil
}

// ownStrategies replaces those strategies that remember their group's last plan: shared with another Subscriber they
// would mix up two groups, and race.
func ownStrategies(cfg *sarama.Config) {
	own := func(s sarama.BalanceStrategy) sarama.BalanceStrategy {
		for _, fresh := range []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyCooperativeSticky()} {
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
