package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/testlog"
	"github.com/txonce/txonce/outbox"
)

const setReplicas = "set min.insync.replicas to 2"

// TestOneReplicaDrawsAWarning, of a Subscriber and of a Publisher, once for each topic.
func TestOneReplicaDrawsAWarning(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprint(replicas), func(t *testing.T) {
				t.Parallel()
				g := c.group(t, 1)
				g.alter(t, map[string]string{"min.insync.replicas": fmt.Sprint(replicas)})
				if err := kafka.CheckReplicas(g.client, g.topic); (err != nil) != (replicas == 1) ||
					err != nil && !strings.Contains(err.Error(), setReplicas) {
					t.Errorf("CheckReplicas = %v", err)
				}
				m := g.join(t, kafka.SubscriberConfig{Processor: &ledger{}})
				g.awaitConsumed(t) // of an empty topic: the member is at work
				if warned := strings.Count(m.log.String(), setReplicas); warned != 2-replicas {
					t.Fatalf("the Subscriber warned %d times. Log:\n%s", warned, m.log)
				}
				if replicas > 1 && c.name != "kfake" { // there is one broker
					return
				}
				log := &testlog.Log{}
				p, err := kafka.NewPublisher(kafka.PublisherConfig{
					Client: dial(t, c.brokers, publisherConfig()),
					Logger: log.Logger(),
				})
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := publish(t, p, patience, outbox.Message{ID: "1", Topic: g.topic})[0]; err != nil {
						t.Error(err)
					}
				}
				if replicas == 1 {
					eventually(t, func() error { // it does not wait for that
						if !strings.Contains(log.String(), setReplicas) {
							return fmt.Errorf("the Publisher does not warn")
						}
						return nil
					})
				}
				if err := p.Close(); err != nil { // which waits for it
					t.Error(err)
				}
				if warned := strings.Count(log.String(), setReplicas); warned != 2-replicas {
					t.Errorf("the Publisher warned %d times. Log:\n%s", warned, log)
				}
			})
		}
	})
}

// TestReplicasThatMayNotBeSeen: a client that may not read the topic's settings logs that and goes on, if the topic may
// be compacted.
func TestReplicasThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c := cluster{name: "kfake", brokers: broker.ListenAddrs()}
	g := c.group(t, 1)
	broker.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		answer := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			refused := kmsg.NewDescribeConfigsResponseResource()
			refused.ErrorCode, refused.ResourceType, refused.ResourceName = int16(sarama.ErrTopicAuthorizationFailed),
				r.ResourceType, r.ResourceName
			answer.Resources = append(answer.Resources, refused)
		}
		return answer, nil, true
	})
	g.refuses(t, kafka.SubscriberConfig{Processor: &ledger{}}, g.topic, "grant this user DescribeConfigs",
		string(kafka.RiskCompaction))
	m := g.join(t, kafka.SubscriberConfig{Processor: &ledger{}, AcceptedRisks: []kafka.Risk{kafka.RiskCompaction}})
	g.produce(t, text(0, "0")...)
	g.awaitConsumed(t)
	if log := m.log.String(); strings.Count(log, "only one broker has; grant this user DescribeConfigs") != 1 ||
		strings.Contains(log, setReplicas) {
		t.Errorf("log %s; want one line that names the permission", log)
	}
}
