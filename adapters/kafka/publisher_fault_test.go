package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/outbox"
)

// faulty is a kfake whose answers to produce requests a test decides: 0 lets a batch through.
func faulty(t *testing.T, answer func(nth int, batch kmsg.RecordBatch) sarama.KError) cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var mu sync.Mutex
	nth := 0
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		produce := req.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		faults := 0
		for _, topic := range produce.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(partition.Records); err != nil {
					panic(err)
				}
				nth++
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, int16(answer(nth, batch))
				if p.ErrorCode != 0 {
					faults++
				}
				t.Partitions = append(t.Partitions, p)
			}
			response.Topics = append(response.Topics, t)
		}
		return response, nil, faults > 0 // tests use one partition where they let some through
	})
	return cluster{name: "kfake", brokers: c.ListenAddrs()}
}

// Each error of a broker that may last, and its classification.
func TestPublisherErrorsOfBrokers(t *testing.T) {
	t.Parallel()
	type blame int
	const (
		message blame = iota
		forGood
		brokers
		theTopic
		nobody
	)
	for _, tt := range []struct {
		code sarama.KError
		want blame
	}{
		{sarama.ErrNotEnoughReplicas, brokers},
		{sarama.ErrNotEnoughReplicasAfterAppend, brokers},
		{sarama.ErrRequestTimedOut, brokers},
		{sarama.ErrNotLeaderForPartition, brokers},
		{sarama.ErrLeaderNotAvailable, brokers},
		{sarama.ErrKafkaStorageError, brokers},
		{sarama.ErrNetworkException, brokers},
		{sarama.ErrClusterAuthorizationFailed, brokers},
		{sarama.ErrThrottlingQuotaExceeded, brokers},
		{sarama.ErrOutOfOrderSequenceNumber, brokers},
		{sarama.ErrInvalidProducerEpoch, brokers},
		{sarama.ErrUnknownProducerID, brokers},
		{sarama.ErrTopicAuthorizationFailed, theTopic},
		{sarama.ErrUnknownTopicOrPartition, theTopic},
		{sarama.ErrPolicyViolation, message},
		{sarama.ErrUnknown, message},
		{sarama.ErrInvalidMessage, message},
		{sarama.ErrMessageSizeTooLarge, forGood},
		{sarama.ErrMessageSetSizeTooLarge, forGood},
		{sarama.ErrInvalidRecord, forGood},
		{sarama.ErrInvalidTimestamp, brokers}, // a clock that is wrong must not have everything parked
		{sarama.ErrUnsupportedCompressionType, brokers},
		{sarama.ErrUnsupportedForMessageFormat, brokers},
		{sarama.ErrInvalidTopic, forGood},
		{sarama.ErrDuplicateSequenceNumber, nobody},
	} {
		t.Run(strings.Fields(fmt.Sprintf("%d %v", int16(tt.code), tt.code))[0], func(t *testing.T) {
			t.Parallel()
			broken := true
			var mu sync.Mutex
			c := faulty(t, func(int, kmsg.RecordBatch) sarama.KError {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					return tt.code
				}
				return sarama.ErrNoError
			})
			topic := testkafka.Topic(t, c.brokers, 1)
			p := newPublisher(t, c.brokers, publisherConfig())
			for i, err := range publish(t, p, patience, outbox.Message{Topic: topic, OrderingKey: "a"},
				outbox.Message{Topic: topic, OrderingKey: "b"}) {
				if tt.want == nobody { // the broker has it, and says so
					if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
					continue
				}
				if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), topic) {
					t.Errorf("message %d: %v; want it to wrap %v, and to name the topic", i, err, tt.code)
				}
				if errors.As(err, new(*outbox.TopicError)) != (tt.want == theTopic) {
					t.Errorf("message %d: the topic's fault %v: %v", i, tt.want != theTopic, err)
				}
				if outbox.IsPermanent(err) != (tt.want == forGood) || unavailable(err) != (tt.want == brokers) {
					t.Errorf("message %d: permanent %v, the broker's fault %v: %v", i, outbox.IsPermanent(err),
						unavailable(err), err)
				}
			}
			mu.Lock()
			broken = false
			mu.Unlock()
			eventually(t, func() error { // after "duplicate" this broker lacks the message that it claimed to have
				return publish(t, p, patience, outbox.Message{Topic: topic, OrderingKey: "a", Payload: []byte("after")})[0]
			})
			all := arrived(t, c.brokers, topic)
			if len(all) != 1 || string(all[0].Value) != "after" {
				t.Errorf("%d messages arrived, want the last one alone", len(all))
			}
		})
	}
}

// When the brokers do not accept a producer's number any more, the next call is sent under a new one.
func TestPublisherFenced(t *testing.T) {
	t.Parallel()
	for _, code := range []sarama.KError{
		sarama.ErrInvalidProducerEpoch, sarama.ErrUnknownProducerID,
		sarama.ErrOutOfOrderSequenceNumber, sarama.ErrProducerFenced,
	} {
		first := int64(-1)
		c := faulty(t, func(_ int, b kmsg.RecordBatch) sarama.KError {
			if first < 0 {
				first = b.ProducerID
			}
			if b.ProducerID == first {
				return code
			}
			return sarama.ErrNoError
		})
		topic := testkafka.Topic(t, c.brokers, 1)
		p := newPublisher(t, c.brokers, publisherConfig())
		m := outbox.Message{Topic: topic, OrderingKey: "k"}
		if err := publish(t, p, patience, m)[0]; !errors.Is(err, code) || !unavailable(err) {
			t.Errorf("%d: %v; want the broker to be blamed", code, err)
		}
		mustPublish(t, p, m)
	}
}

// When a broker refuses a batch because of one message, or because of its total size, the other messages are published.
func TestPublisherBatchRefusedForOneMessage(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]func(kmsg.RecordBatch) bool{
		"because of all together": func(b kmsg.RecordBatch) bool { return b.NumRecords > 1 },
		"because of one":          func(b kmsg.RecordBatch) bool { return strings.Contains(string(b.Records), "bad") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batches := 0
			c := faulty(t, func(_ int, b kmsg.RecordBatch) sarama.KError {
				if b.NumRecords > 1 {
					batches++
				}
				if refuses(b) {
					return sarama.ErrMessageSizeTooLarge
				}
				return sarama.ErrNoError
			})
			topic := testkafka.Topic(t, c.brokers, 1)
			cfg := publisherConfig()
			cfg.Producer.Flush.Messages, cfg.Producer.Flush.Frequency = 10, 500*time.Millisecond // all in one batch
			p := newPublisher(t, c.brokers, cfg)
			var msgs []outbox.Message
			for i := range 10 {
				msgs = append(msgs, outbox.Message{
					Topic: topic, OrderingKey: fmt.Sprint("k", i),
					Payload: fmt.Append(nil, "good", i),
				})
			}
			msgs[3].Payload = []byte("bad")
			want := 10
			for i, err := range publish(t, p, patience, msgs...) {
				if name == "because of one" && i == 3 {
					want = 9
					if !outbox.IsPermanent(err) || !errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
						!strings.Contains(err.Error(), "max.message.bytes") {
						t.Errorf("the bad one: %v", err)
					}
				} else if err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}
			if n := len(arrived(t, c.brokers, topic)); n != want {
				t.Errorf("%d messages arrived, want %d", n, want)
			}
			if batches == 0 {
				t.Error("there was no batch of several messages; the test has shown nothing")
			}
		})
	}
}

// A Partitioner that panics fails the messages that it panics for, and not the process.
func TestPublisherPartitionerPanics(t *testing.T) {
	t.Parallel()
	c := faulty(t, func(int, kmsg.RecordBatch) sarama.KError { return sarama.ErrNoError })
	topic, other := testkafka.Topic(t, c.brokers, 2), testkafka.Topic(t, c.brokers, 1)
	cfg := publisherConfig()
	cfg.Producer.Partitioner = func(of string) sarama.Partitioner {
		if of == other {
			panic("no such topic")
		}
		byHash := sarama.NewHashPartitioner(of)
		return partitionFunc(func(m *sarama.ProducerMessage, n int32) (int32, error) {
			if m.Key == sarama.StringEncoder("bad") {
				panic("no such tenant")
			}
			return byHash.Partition(m, n)
		})
	}
	p := newPublisher(t, c.brokers, cfg)
	for range 5 { // sarama's own circuit breaker opens after three
		errs := publish(t, p, patience, outbox.Message{Topic: topic, OrderingKey: "a"},
			outbox.Message{Topic: topic, OrderingKey: "bad"},
			outbox.Message{Topic: other, OrderingKey: "a"}, outbox.Message{Topic: topic, OrderingKey: "b"})
		for i, want := range []string{
			"", "Producer.Partitioner: panicked: no such tenant",
			"Producer.Partitioner: panicked: no such topic", "",
		} {
			if err := errs[i]; (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
				unavailable(err)) {
				t.Errorf("message %d: %v; want %q", i, err, want)
			}
		}
	}
	if n := len(arrived(t, c.brokers, topic)); n != 10 {
		t.Errorf("%d messages arrived, want 10", n)
	}
}

// A message that sarama reports as successful was appended once, even if an answer was lost and the message was sent
// again.
func TestPublisherLostAnswers(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 1)
		cfg := publisherConfig()
		g := through(cfg)
		p := newPublisher(t, c.brokers, cfg)
		mustPublish(t, p, outbox.Message{Topic: topic, Payload: []byte("first")})
		for i := range 10 {
			g.lose(1)
			mustPublish(t, p, outbox.Message{Topic: topic, OrderingKey: "k", Payload: fmt.Append(nil, i)})
		}
		var got []string
		for _, m := range arrived(t, c.brokers, topic) {
			got = append(got, string(m.Value))
		}
		if want := "first 0 1 2 3 4 5 6 7 8 9"; strings.Join(got, " ") != want {
			t.Errorf("arrived: %v; want %s", got, want)
		}
		if g.lost() != 10 {
			t.Errorf("%d answers were lost, want 10", g.lost())
		}
	})
}
