package kafka_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
)

// connected is a sarama.Client that has settings, and knows a broker unless lost.
type connected struct {
	settings
	lost bool
}

func (c connected) Brokers() []*sarama.Broker {
	if c.lost {
		return nil
	}
	return []*sarama.Broker{sarama.NewBroker("127.0.0.1:9092")}
}

// partitioner makes a PartitionerConstructor from a func that gets the number of earlier partitioners.
func partitioner(f func(nth int, m *sarama.ProducerMessage, n int32) (int32, error)) sarama.PartitionerConstructor {
	made := 0
	return func(string) sarama.Partitioner {
		made++
		nth := made
		return partitionFunc(func(m *sarama.ProducerMessage, n int32) (int32, error) { return f(nth, m, n) })
	}
}

type partitionFunc func(*sarama.ProducerMessage, int32) (int32, error)

func (f partitionFunc) Partition(m *sarama.ProducerMessage, n int32) (int32, error) { return f(m, n) }
func (f partitionFunc) RequiresConsistency() bool                                   { return true }

// fickle leaves out partitions that have no leader.
type fickle struct{ partitionFunc }

func (fickle) RequiresConsistency() bool { return false }

func hashed(e sarama.Encoder, seed int) int32 {
	var text []byte
	if e != nil {
		text, _ = e.Encode()
	}
	h := fnv.New32a()
	fmt.Fprint(h, seed)
	h.Write(text)
	return int32(h.Sum32() >> 1)
}

func TestPublisherRefusesSettings(t *testing.T) {
	type config = sarama.Config
	by := func(f func(nth int, m *sarama.ProducerMessage, n int32) (int32, error)) func(*config) {
		return func(c *config) { c.Producer.Partitioner = partitioner(f) }
	}
	for _, tt := range []struct {
		name  string
		set   func(*config)
		says  string
		allow kafka.Risk
	}{
		{
			"leader only", func(c *config) { c.Producer.RequiredAcks = sarama.WaitForLocal },
			"Producer.RequiredAcks is not WaitForAll", "",
		},
		{
			"no acks", func(c *config) { c.Producer.RequiredAcks = sarama.NoResponse },
			"Producer.RequiredAcks is not WaitForAll", "",
		},
		{"not idempotent", func(c *config) { c.Producer.Idempotent = false }, "Producer.Idempotent is false", ""},
		{"pipelined", func(c *config) { c.Net.MaxOpenRequests = 5 }, "Net.MaxOpenRequests is 5", ""},
		{
			"silent successes", func(c *config) { c.Producer.Return.Successes = false },
			"Producer.Return.Successes is false", "",
		},
		{"silent errors", func(c *config) { c.Producer.Return.Errors = false }, "Producer.Return.Errors is false", ""},
		{"no retries", func(c *config) { c.Producer.Retry.Max = 0 }, "Producer.Retry.Max is 0", ""},
		{"transactions", func(c *config) { c.Producer.Transaction.ID = "relay" }, "Producer.Transaction.ID is set", ""},
		{
			"interceptors", func(c *config) { c.Producer.Interceptors = []sarama.ProducerInterceptor{nil} },
			"Producer.Interceptors is set", "",
		},
		{
			"slow acks", func(c *config) { c.Producer.Timeout = c.Net.ReadTimeout },
			"Producer.Timeout (30s) is not less than Net.ReadTimeout (30s)", "",
		},
		{
			"full batches only", func(c *config) { c.Producer.Flush.Messages = 100 },
			"Producer.Flush.Messages or Bytes is set, but not Frequency", "",
		},
		{
			"full batches only, by size", func(c *config) { c.Producer.Flush.Bytes = 100 },
			"Producer.Flush.Messages or Bytes is set, but not Frequency", "",
		},
		{
			"lingering", func(c *config) { c.Producer.Flush.Frequency = time.Minute },
			"Producer.Flush.Frequency is 1m0s", "",
		},
		{
			"larger than a request", func(c *config) { c.Producer.MaxMessageBytes = int(sarama.MaxRequestSize) },
			"Producer.MaxMessageBytes is 104857600", "",
		},
		{"old protocol", func(c *config) { c.Version = sarama.V0_10_2_0 }, "Version is 0.10.2.0", ""},
		{
			"topics by accident", func(c *config) { c.Metadata.AllowAutoTopicCreation = true },
			"Metadata.AllowAutoTopicCreation is true", kafka.RiskAutoTopicCreation,
		},
		{
			"round robin", func(c *config) { c.Producer.Partitioner = sarama.NewRoundRobinPartitioner },
			"Producer.Partitioner is not by key", "",
		},
		{
			"random", func(c *config) { c.Producer.Partitioner = sarama.NewRandomPartitioner },
			"Producer.Partitioner is not by key", "",
		},
		{
			"manual", func(c *config) { c.Producer.Partitioner = sarama.NewManualPartitioner },
			"Producer.Partitioner is not by key", "",
		},
		{"no partitioner", func(c *config) { c.Producer.Partitioner = nil }, "Producer.Partitioner is nil", ""},
		{
			"by payload", by(func(_ int, m *sarama.ProducerMessage, n int32) (int32,
				error,
			) {
				return hashed(m.Value, 0) % n, nil
			}),
			"Producer.Partitioner is not by key", "",
		},
		{
			"by header", by(func(_ int, m *sarama.ProducerMessage, n int32) (int32, error) {
				return hashed(sarama.ByteEncoder(m.Headers[0].Value), 0) % n, nil
			}), "Producer.Partitioner is not by key", "",
		},
		{
			"each relay has its own hash", by(func(nth int, m *sarama.ProducerMessage, n int32) (int32,
				error,
			) {
				return hashed(m.Key, nth) % n, nil
			}),
			"Producer.Partitioner is not by key", "",
		},
		{
			"not always", by(func(_ int, m *sarama.ProducerMessage, n int32) (int32, error) {
				if rand.IntN(20) == 0 {
					return rand.Int32N(n), nil
				}
				return hashed(m.Key, 0) % n, nil
			}), "Producer.Partitioner is not by key", "",
		},
		{
			"only among partitions with a leader", func(c *config) {
				c.Producer.Partitioner = func(string) sarama.Partitioner {
					return fickle{func(m *sarama.ProducerMessage, n int32) (int32, error) { return hashed(m.Key, 0) % n, nil }}
				}
			}, "Producer.Partitioner does not require consistency", "",
		},
		{
			"insists on keys", by(func(_ int, m *sarama.ProducerMessage, n int32) (int32, error) {
				if m.Key == nil {
					return 0, errors.New("no key")
				}
				return 0, nil
			}), "Producer.Partitioner has no partition for a message without key: no key", "",
		},
		{
			"beyond the last", by(func(_ int, _ *sarama.ProducerMessage, n int32) (int32, error) { return n, nil }),
			"Producer.Partitioner has no partition for a message without key", "",
		},
		{
			"panics", by(func(int, *sarama.ProducerMessage, int32) (int32, error) { panic("ouch") }),
			"Producer.Partitioner was tried, and panicked: ouch", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := kafka.PublisherConfig{Client: connected{settings: settings{cfg: kafka.NewConfig()}}}
			tt.set(cfg.Client.Config())
			_, err := kafka.NewPublisher(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), "\n") != 0 {
				t.Fatalf("NewPublisher = %v; want it refused because of %s alone", err, tt.says)
			}
			if tt.allow == "" {
				cfg.AcceptedRisks = []kafka.Risk{kafka.RiskAutoTopicCreation}
				if _, err := kafka.NewPublisher(cfg); err == nil {
					t.Errorf("NewPublisher accepts it with %v", cfg.AcceptedRisks)
				}
				return
			}
			cfg.AcceptedRisks = []kafka.Risk{tt.allow}
			if _, err := kafka.NewPublisher(cfg); err != nil {
				t.Errorf("NewPublisher with %v: %v", cfg.AcceptedRisks, err)
			}
		})
	}
}

func TestPublisherAcceptsSettings(t *testing.T) {
	for name, set := range map[string]func(*sarama.Config){
		"NewConfig":   func(*sarama.Config) {},
		"compression": func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionZSTD },
		"batches for 5 ms": func(c *sarama.Config) {
			c.Producer.Flush.Messages, c.Producer.Flush.Frequency = 100, 5*time.Millisecond
		},
		"Java's hash": func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewMurmur2Partitioner },
		"another hash": func(c *sarama.Config) {
			c.Producer.Partitioner = sarama.NewCustomHashPartitioner(func() hash.Hash32 { return fnv.New32() })
		},
		"reference hash": func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewReferenceHashPartitioner },
		"consistent CRC": func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewConsistentCRCHashPartitioner },
		"all in one place": func(c *sarama.Config) {
			c.Producer.Partitioner = partitioner(func(int, *sarama.ProducerMessage, int32) (int32,
				error,
			) {
				return 0, nil
			})
		},
		"many retries":      func(c *sarama.Config) { c.Producer.Retry.Max = 1 << 20 },
		"version 1.0":       func(c *sarama.Config) { c.Version = sarama.V1_0_0_0 },
		"a later version":   func(c *sarama.Config) { c.Version = sarama.V3_6_0_0 },
		"a Subscriber's":    func(c *sarama.Config) { c.Consumer.Group.InstanceId = "a" },
		"a smaller maximum": func(c *sarama.Config) { c.Producer.MaxMessageBytes = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := kafka.NewConfig()
			set(cfg)
			if _, err := kafka.NewPublisher(kafka.PublisherConfig{Client: connected{settings: settings{cfg: cfg}}}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPublisherRefusesItsConfig(t *testing.T) {
	client := connected{settings: settings{cfg: kafka.NewConfig()}}
	lost, closed := client, client
	lost.lost, closed.closed = true, true
	for says, cfg := range map[string]kafka.PublisherConfig{
		"PublisherConfig.Client is required":     {},
		"PublisherConfig.Client is closed":       {Client: closed},
		"PublisherConfig.Client knows no broker": {Client: lost},
		`PublisherConfig.AcceptedRisks contains "RiskOffsetNewest"`: {
			Client:        client,
			AcceptedRisks: []kafka.Risk{kafka.RiskOffsetNewest},
		},
	} {
		if _, err := kafka.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want an error that says %s", err, says)
		}
	}
	// All that is wrong is said at once.
	wrong := kafka.NewConfig()
	wrong.Producer.Idempotent, wrong.Producer.Partitioner = false, sarama.NewRandomPartitioner
	_, err := kafka.NewPublisher(kafka.PublisherConfig{
		Client:        connected{settings: settings{cfg: wrong}},
		AcceptedRisks: []kafka.Risk{"x"},
	})
	for _, says := range []string{"Idempotent", "Partitioner", `"x"`} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to name %s", err, says)
		}
	}
}
