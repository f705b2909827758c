package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// limitedTopic makes a topic that refuses batches of more than so many bytes.
func limitedTopic(t *testing.T, brokers []string, partitions int32, bytes string) string {
	t.Helper()
	// the name; a topic's settings can be set at once only as it is made
	topic := testkafka.Topic(t, brokers, partitions) + "-limited"
	cfg := kafka.NewConfig()
	cfg.Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the 3 s that are the default
	client := dial(t, brokers, cfg)
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	detail := &sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"max.message.bytes": &bytes},
	}
	eventually(t, func() error { // a broker that was frozen is fenced for a moment, or says too late what became of it
		err := admin.CreateTopic(topic, detail, false)
		if errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return nil // by an earlier try
		}
		return err
	})
	t.Cleanup(func() {
		if err := admin.DeleteTopic(topic); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() error { // until each partition's leader knows that it is
		err := client.RefreshMetadata(topic)
		for p := range partitions {
			_, no := client.GetOffset(topic, p, sarama.OffsetNewest)
			err = errors.Join(err, no)
		}
		return err
	})
	return topic
}

// TestPublisher is the suite. Messages that are too large are refused by the Publisher itself, or by the brokers.
func TestPublisher(t *testing.T) {
	for _, by := range []struct {
		name  string
		topic func(t *testing.T, brokers []string) string
		large int
	}{
		{"refuses large messages", func(t *testing.T, brokers []string) string { return testkafka.Topic(t, brokers, 3) }, 1 << 20},
		{"brokers refuse large messages", func(t *testing.T, brokers []string) string { return limitedTopic(t, brokers, 3, "20000") }, 30_000},
	} {
		t.Run(by.name, func(t *testing.T) {
			eachCluster(t, func(t *testing.T, c cluster) {
				if c.name == "kfake" && by.large < 1<<20 {
					t.Log("does not apply: kfake takes messages of any size")
					return
				}
				outboxtest.TestPublisher(t, publisherHarness(c, by.topic, by.large))
			})
		})
	}
}

func publisherHarness(c cluster, topic func(*testing.T, []string) string, large int) outboxtest.PublisherHarness {
	var brokers *gate // of the case that runs
	return outboxtest.PublisherHarness{
		New: func(t *testing.T) outbox.Publisher {
			cfg := publisherConfig()
			brokers = through(cfg)
			return newPublisher(t, c.brokers, cfg)
		},
		Topic: func(t *testing.T) string { return topic(t, c.brokers) },
		Read: func(t *testing.T, topic string, n int) (msgs []outbox.Message) {
			elapse(100 * time.Millisecond) // what was on its way when it was given up
			for _, m := range arrived(t, c.brokers, topic) {
				msg := outbox.Message{
					Topic: m.Topic, OrderingKey: string(m.Key), Payload: m.Value,
					Headers: map[string]string{},
				}
				for _, h := range m.Headers {
					msg.Headers[string(h.Key)] = string(h.Value)
				}
				msgs = append(msgs, msg)
			}
			return msgs
		},
		Oversize: func(m outbox.Message) outbox.Message {
			m.Payload = make([]byte, large)
			return m
		},
		Unroutable: func(t *testing.T) string { return topic(t, c.brokers) + "-missing" },
		Unsafe:     unsafeSettings(),
		Pause:      func(*testing.T) func() { return brokers.hush() },
		Stop:       func(*testing.T) func() { return brokers.close() },
	}
}

func unsafeSettings() (all []outboxtest.Unsafe) {
	for setting, set := range map[string]func(*sarama.Config){
		"Producer.RequiredAcks":     func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal },
		"Producer.Idempotent":       func(c *sarama.Config) { c.Producer.Idempotent = false },
		"Net.MaxOpenRequests":       func(c *sarama.Config) { c.Net.MaxOpenRequests = 5 },
		"Producer.Return.Successes": func(c *sarama.Config) { c.Producer.Return.Successes = false },
		"Producer.Return.Errors":    func(c *sarama.Config) { c.Producer.Return.Errors = false },
		"Producer.Retry.Max":        func(c *sarama.Config) { c.Producer.Retry.Max = 0 },
		"Producer.Partitioner":      func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewRandomPartitioner },
	} {
		all = append(all, outboxtest.Unsafe{Setting: setting, New: func(*testing.T) error {
			cfg := kafka.NewConfig()
			set(cfg)
			_, err := kafka.NewPublisher(kafka.PublisherConfig{Client: connected{settings: settings{cfg: cfg}}})
			return err
		}})
	}
	return all
}
