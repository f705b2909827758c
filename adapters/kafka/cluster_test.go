package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/internal/test/parallel"
	"github.com/txonce/txonce/internal/test/testlog"
)

func TestMain(m *testing.M) {
	parallel.Tests(12) // they mostly wait for the group
	leaktest.Main(m,
		// sarama's metrics, one per process for ever
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// of a breaker in sarama: it sleeps out its 10 s
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
}

// cluster is a Kafka, of the test's own or shared.
type cluster struct {
	name    string
	brokers []string
	restart func(context.Context) error // nil: it is shared
}

// eachCluster runs test against kfake and, unless -short, against Apache Kafka.
func eachCluster(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		test(t, startKfake(t))
	})
	if !testing.Short() {
		t.Run("kafka", func(t *testing.T) {
			t.Parallel()
			test(t, cluster{name: "kafka", brokers: testkafka.Brokers(t)})
		})
	}
}

func startKfake(t *testing.T, opts ...kfake.Opt) cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(500*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return cluster{name: "kfake", brokers: c.ListenAddrs()}
}

// protocols are the ways of rebalancing.
var protocols = []struct {
	name     string
	strategy func() sarama.BalanceStrategy
}{
	{"eager", sarama.NewBalanceStrategyRange},
	{"cooperative", sarama.NewBalanceStrategyCooperativeSticky},
}

// eachProtocol runs test with each of them.
func eachProtocol(t *testing.T, test func(t *testing.T, strategy sarama.BalanceStrategy)) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p.strategy())
		})
	}
}

// testConfig has short intervals, so that failures are noticed and retried quickly. Its timeouts are long, because the
// machine may be busy and the broker's JVM may pause: a member that loses its session gets messages again, and most
// tests treat that as a fault.
func testConfig(strategy sarama.BalanceStrategy) *sarama.Config {
	cfg := kafka.NewConfig()
	cfg.ClientID = "txonce-test"
	cfg.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	cfg.Consumer.Group.Session.Timeout = 20 * time.Second
	cfg.Consumer.Group.Rebalance.Timeout = 60 * time.Second
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	cfg.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	cfg.Metadata.Retry.Backoff = 100 * time.Millisecond
	return cfg
}

func dial(t *testing.T, brokers []string, cfg *sarama.Config) sarama.Client {
	t.Helper()
	client, err := connect(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// connect tries until it succeeds: when a broker has paused for longer than its session with the controller, metadata
// does not name it for a moment.
func connect(brokers []string, cfg *sarama.Config) (client sarama.Client, err error) {
	for deadline := time.Now().Add(patience); ; elapse(100 * time.Millisecond) {
		if client, err = sarama.NewClient(brokers, cfg); err == nil || time.Now().After(deadline) {
			return client, err
		}
	}
}

// group is a consumer group of one topic, both of the test's own.
type group struct {
	cluster
	name, topic string
	client      sarama.Client // of the test itself
}

func (c cluster) group(t *testing.T, partitions int32) *group {
	t.Helper()
	client := dial(t, c.brokers, testConfig(sarama.NewBalanceStrategyRange()))
	return &group{c, "group-" + strings.ToLower(rand.Text()[:10]), testkafka.Topic(t, c.brokers, partitions), client}
}

// produce sends msgs, in order, each to the Partition it names.
func (g *group) produce(t *testing.T, msgs ...*sarama.ProducerMessage) {
	t.Helper()
	if err := send(g.brokers, g.topic, msgs...); err != nil {
		t.Fatal(err)
	}
}

// produceAtOnce is produce in one request, so that a fetch of the first message returns all of them. All are in one
// partition.
func (g *group) produceAtOnce(t *testing.T, msgs ...*sarama.ProducerMessage) {
	t.Helper()
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	cfg.Producer.Flush.Messages = len(msgs)
	if err := sendWith(cfg, g.brokers, g.topic, msgs...); err != nil {
		t.Fatal(err)
	}
}

func send(brokers []string, topic string, msgs ...*sarama.ProducerMessage) error {
	return sendWith(testConfig(sarama.NewBalanceStrategyRange()), brokers, topic, msgs...)
}

func sendWith(cfg *sarama.Config, brokers []string, topic string, msgs ...*sarama.ProducerMessage) error {
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	client, err := connect(brokers, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		m.Topic = topic
	}
	return errors.Join(producer.SendMessages(msgs), producer.Close())
}

// text makes messages of these texts, without keys, for partition.
func text(partition int32, texts ...string) (msgs []*sarama.ProducerMessage) {
	for _, s := range texts {
		msgs = append(msgs, &sarama.ProducerMessage{Partition: partition, Value: sarama.StringEncoder(s)})
	}
	return msgs
}

// numbers makes the texts 0 to n-1.
func numbers(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// left returns how many offsets the group has not committed yet. The group must have committed an offset in each
// partition.
func (g *group) left() (n int64, err error) {
	partitions, err := g.client.Partitions(g.topic)
	if err != nil {
		return 0, err
	}
	for _, p := range partitions {
		committed, err := g.committed(p)
		if err != nil {
			return 0, err
		}
		if committed < 0 {
			return 0, fmt.Errorf("partition %d: the group has committed no offset", p)
		}
		behind, err := g.behind(p)
		if err != nil {
			return 0, err
		}
		n += behind
	}
	return n, nil
}

// committed returns the group's offset; negative: there is none.
func (g *group) committed(partition int32) (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(g.client)
	if err != nil {
		return 0, err
	}
	answer, err := admin.ListConsumerGroupOffsets(g.name, map[string][]int32{g.topic: {partition}})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		// kfake's answer for a group without members and offsets; Kafka's has the offset -1
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	if answer.Err != sarama.ErrNoError {
		return 0, answer.Err
	}
	block := answer.GetBlock(g.topic, partition)
	if block == nil {
		return 0, sarama.ErrIncompleteResponse
	}
	if block.Err != sarama.ErrNoError {
		return 0, block.Err
	}
	return block.Offset, nil
}

// behind returns the distance from the group's offset, or from 0 if there is none, to the end of the partition.
func (g *group) behind(partition int32) (int64, error) {
	committed, err := g.committed(partition)
	if err != nil {
		return 0, err
	}
	end, err := g.client.GetOffset(g.topic, partition, sarama.OffsetNewest)
	return end - max(committed, 0), err
}

// awaitConsumed waits until the committed offsets are the topic's ends.
func (g *group) awaitConsumed(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		n, err := g.left()
		if err == nil && n != 0 {
			err = fmt.Errorf("the group's committed offsets are %d short of the topic's ends", n)
		}
		return err
	})
}

// member is a running Subscriber.
type member struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
	log    *testlog.Log
}

// join starts a Subscriber, with the settings of testConfig unless cfg has a Client.
func (g *group) join(t *testing.T, cfg kafka.SubscriberConfig) *member {
	t.Helper()
	m := &member{t: t, done: make(chan struct{}), log: &testlog.Log{}}
	if cfg.Client == nil {
		cfg.Client = dial(t, g.brokers, testConfig(sarama.NewBalanceStrategyRange()))
	}
	if cfg.Logger == nil {
		cfg.Logger = m.log.Logger()
	}
	cfg.Group, cfg.Topics = g.name, []string{g.topic}
	sub, err := kafka.NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = sub.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-m.done:
		case <-time.After(patience):
			t.Error("Run did not return when its context ended")
		}
		if t.Failed() {
			t.Log("the Subscriber's log:\n" + m.log.String())
		}
	})
	return m
}

// stop ends Run's context and returns what Run does.
func (m *member) stop() error {
	m.cancel()
	return m.await()
}

// await waits for Run to return.
func (m *member) await() error {
	m.t.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(patience):
		m.t.Fatal("Run did not return in time")
		return nil
	}
}

// patience is how long a test waits for an event that must happen.
const patience = 2 * time.Minute

// eventually repeats check until it returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		elapse(20 * time.Millisecond)
	}
}

// sooner or later ask succeeds.
func sooner[T any](t *testing.T, ask func() (T, error)) (answer T) {
	t.Helper()
	eventually(t, func() (err error) {
		answer, err = ask()
		return err
	})
	return answer
}

// elapse lets real time pass: for events that must not happen, or that a test cannot observe.
func elapse(d time.Duration) { <-time.After(d) }

func keyed(partition int32, keysAndTexts ...string) (msgs []*sarama.ProducerMessage) {
	for i := 0; i < len(keysAndTexts); i += 2 {
		m := &sarama.ProducerMessage{Partition: partition, Value: sarama.StringEncoder(keysAndTexts[i+1])}
		if keysAndTexts[i] != "" {
			m.Key = sarama.StringEncoder(keysAndTexts[i])
		}
		msgs = append(msgs, m)
	}
	return msgs
}
