package kafka_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/features"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testlog"
)

// TestSubscriber runs the suite on Apache Kafka and on kfake, with eager and with cooperative rebalancing.
func TestSubscriber(t *testing.T) {
	t.Parallel()
	clusters := []struct {
		name    string
		open    func(t *testing.T) func(t *testing.T) cluster
		missing map[string]string
	}{
		{"kfake", func(*testing.T) func(t *testing.T) cluster { return restartableKfake }, nil},
		{"kafka", sharedOrOwnKafka, noRestart()},
	}
	if testing.Short() {
		clusters = clusters[:1]
	}
	for _, c := range clusters {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := c.open(t)
			for i, p := range protocols {
				// each case runs with each protocol and with each concurrency, but not with each pair of them
				for j, concurrency := range []int{1, 8} {
					name := p.name
					if concurrency > 1 {
						name += ", 8 side by side"
					}
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						can := features.Kafka.Features
						can.DoesNotApply = c.missing
						consumertest.TestSubscriber(t, consumertest.SubscriberHarness{
							New: func(t *testing.T) consumertest.Broker {
								b := newSuiteBroker(t, open(t), p.strategy())
								b.concurrency = concurrency
								return b
							},
							Features: can,
							Select:   func(name string) bool { return matrix.Dealt(name, (i+j)%2, 2) },
							Run: func(t *testing.T, c func(*testing.T)) {
								t.Parallel()
								c(t)
							},
						})
					})
				}
			}
		})
	}
}

const restartCase = "the broker restarts"

// noRestart says why no broker can be restarted; nil if one can.
func noRestart() map[string]string {
	if why := noJars(); why != "" {
		return map[string]string{restartCase: why}
	}
	return nil
}

// sharedOrOwnKafka gives each case the shared cluster, unless the case restarts it. Cases that do use a second one, one
// after the other, because a JVM is slow to start.
func sharedOrOwnKafka(t *testing.T) func(t *testing.T) cluster {
	var using sync.Mutex
	own := sync.OnceValue(func() *ownKafka { return startOwnKafka(t) })
	return func(t *testing.T) cluster {
		if !strings.HasSuffix(t.Name(), strings.ReplaceAll(restartCase, " ", "_")) {
			return cluster{name: "kafka", brokers: testkafka.Brokers(t)}
		}
		using.Lock()
		t.Cleanup(using.Unlock)
		k := own()
		return cluster{name: "kafka", brokers: []string{k.address}, restart: func(ctx context.Context) error {
			k.kill()
			return k.start(ctx)
		}}
	}
}

// restartableKfake keeps its data on disk.
func restartableKfake(t *testing.T) cluster {
	dir := t.TempDir()
	start := func(opts ...kfake.Opt) (*kfake.Cluster, error) {
		return kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SyncWrites())...)
	}
	// the system gives it to no other process while the cluster is away
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := start(kfake.Ports(number))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return cluster{name: "kfake", brokers: c.ListenAddrs(), restart: func(ctx context.Context) error {
		c.Close()
		elapse(3 * time.Second) // long enough for sessions to fail
		for {                   // until the port is free again
			again, err := start(kfake.Ports(number))
			if err == nil {
				c = again
				return nil
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			}
		}
	}}
}

// suiteBroker is a group of one topic as a consumertest.Broker.
type suiteBroker struct {
	*group
	t        *testing.T
	strategy sarama.BalanceStrategy

	concurrency int
	trace       *driver.SourceTrace
	producer    func() (sarama.SyncProducer, error)
}

var (
	_ consumertest.Broker    = (*suiteBroker)(nil)
	_ consumertest.Restarter = (*suiteBroker)(nil)
	_ consumertest.Revoker   = (*suiteBroker)(nil)
	_ consumertest.Tracer    = (*suiteBroker)(nil)
	_ consumertest.Trimmer   = (*suiteBroker)(nil)
)

func newSuiteBroker(t *testing.T, c cluster, strategy sarama.BalanceStrategy) *suiteBroker {
	b := &suiteBroker{group: c.group(t, 2), t: t, strategy: strategy}
	b.producer = sync.OnceValues(func() (sarama.SyncProducer, error) {
		cfg := testConfig(strategy)
		cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = sarama.WaitForAll, true
		client, err := connect(c.brokers, cfg)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { client.Close() })
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err == nil {
			t.Cleanup(func() { producer.Close() })
		}
		return producer, err
	})
	return b
}

// Publish implements consumertest.Broker.
func (b *suiteBroker) Publish(_ context.Context, msgs ...consumer.Message) error {
	producer, err := b.producer()
	if err != nil {
		return err
	}
	var out []*sarama.ProducerMessage
	for _, m := range msgs {
		raw := &sarama.ProducerMessage{Topic: b.topic, Value: sarama.ByteEncoder(m.Payload)}
		if m.OrderingKey != "" {
			raw.Key = sarama.StringEncoder(m.OrderingKey)
		}
		for k, v := range m.Headers {
			raw.Headers = append(raw.Headers, sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
		}
		out = append(out, raw)
	}
	return producer.SendMessages(out)
}

// Subscriber implements consumertest.Broker.
func (b *suiteBroker) Subscriber(p consumer.Processor, grace time.Duration) (consumertest.Subscriber, error) {
	log := &testlog.Log{}
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Log("the Subscriber's log:\n" + log.String())
		}
	})
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Client: dial(b.t, b.brokers, testConfig(b.strategy)), Group: b.name, Topics: []string{b.topic}, Processor: p,
		Grace:       grace,
		Concurrency: b.concurrency, Trace: b.trace, Logger: log.Logger(),
	})
}

// Left implements consumertest.Broker. The group may have committed nothing yet.
func (b *suiteBroker) Left(context.Context) (int, error) {
	partitions, err := b.client.Partitions(b.topic)
	if err != nil {
		return 0, err
	}
	left := 0
	for _, p := range partitions {
		n, err := b.behind(p)
		if err != nil {
			return 0, err
		}
		left += int(n)
	}
	return left, nil
}

// Trace implements consumertest.Tracer.
func (b *suiteBroker) Trace(trace *driver.SourceTrace) { b.trace = trace }

// Trim implements consumertest.Trimmer.
func (b *suiteBroker) Trim(context.Context) error {
	admin, err := sarama.NewClusterAdminFromClient(b.client)
	if err != nil {
		return err
	}
	partitions, err := b.client.Partitions(b.topic)
	if err != nil {
		return err
	}
	ends := map[int32]int64{}
	for _, p := range partitions {
		if ends[p], err = b.client.GetOffset(b.topic, p, sarama.OffsetNewest); err != nil {
			return err
		}
	}
	return admin.DeleteRecords(b.topic, ends)
}

// Restart implements consumertest.Restarter.
func (b *suiteBroker) Restart(ctx context.Context) error { return b.restart(ctx) }

// Revoke implements consumertest.Revoker: it leaves the group in the name of its members, and tries again when a member
// has joined again and has another ID.
func (b *suiteBroker) Revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := b.revoke()
		if !errors.Is(err, sarama.ErrUnknownMemberId) && !errors.Is(err, errNoMembers) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

var errNoMembers = errors.New("the group has no members")

func (b *suiteBroker) revoke() error {
	admin, err := sarama.NewClusterAdminFromClient(b.client)
	if err != nil {
		return err
	}
	groups, err := admin.DescribeConsumerGroups([]string{b.name})
	if err != nil {
		return err
	}
	if err := b.client.RefreshCoordinator(b.name); err != nil {
		return err
	}
	coordinator, err := b.client.Coordinator(b.name)
	if err != nil {
		return err
	}
	if len(groups[0].Members) == 0 {
		return errNoMembers
	}
	for id := range groups[0].Members {
		if err := leave(coordinator, b.name, id); err != nil {
			return err
		}
	}
	return nil
}

// leave is answered for the group and for the member.
func leave(coordinator *sarama.Broker, group, member string) error {
	answer, err := coordinator.LeaveGroup(&sarama.LeaveGroupRequest{
		Version: 4, GroupId: group, Members: []sarama.MemberIdentity{{MemberId: member}},
	})
	if err != nil {
		return err
	}
	if answer.Err != sarama.ErrNoError {
		return answer.Err
	}
	for _, m := range answer.Members {
		if m.Err != sarama.ErrNoError {
			return m.Err
		}
	}
	return nil
}
