package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/outbox"
)

// publisherConfig gives up quickly, and accepts the settings that tests need.
func publisherConfig() *sarama.Config {
	cfg := kafka.NewConfig()
	cfg.ClientID = "txonce-test"
	cfg.Metadata.Retry.Backoff = 50 * time.Millisecond
	cfg.Producer.Retry.Backoff = 50 * time.Millisecond
	return cfg
}

func newPublisher(t *testing.T, brokers []string, cfg *sarama.Config) *kafka.Publisher {
	t.Helper()
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: dial(t, brokers, cfg), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// publish publishes msgs within that time, and returns one answer for each.
func publish(t *testing.T, p outbox.Publisher, within time.Duration, msgs ...outbox.Message) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	start := time.Now()
	errs := p.Publish(ctx, msgs)
	if took := time.Since(start); took > within+20*time.Second { // the machine may be busy
		t.Errorf("Publish took %v, although its ctx ended after %v", took, within)
	}
	if errs == nil {
		return make([]error, len(msgs))
	}
	if len(errs) != len(msgs) {
		t.Fatalf("%d answers to %d messages", len(errs), len(msgs))
	}
	return errs
}

func mustPublish(t *testing.T, p outbox.Publisher, msgs ...outbox.Message) {
	t.Helper()
	if err := errors.Join(publish(t, p, patience, msgs...)...); err != nil {
		t.Fatal(err)
	}
}

// arrived returns all that topic holds, partition by partition.
func arrived(t *testing.T, brokers []string, topic string) (all []*sarama.ConsumerMessage) {
	t.Helper()
	client, err := connect(brokers, kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	partitions := sooner(t, func() ([]int32, error) { return client.Partitions(topic) })
	for _, n := range partitions {
		end := sooner(t, func() (int64, error) { return client.GetOffset(topic, n, sarama.OffsetNewest) })
		if end == 0 {
			continue
		}
		partition := sooner(t, func() (sarama.PartitionConsumer, error) {
			return consumer.ConsumePartition(topic, n, sarama.OffsetOldest)
		})
		for {
			var m *sarama.ConsumerMessage
			select {
			case m = <-partition.Messages():
			case <-time.After(patience):
				t.Fatalf("partition %d has not been read to its end in time", n)
			}
			all = append(all, m)
			if m.Offset >= end-1 {
				break
			}
		}
		partition.Close()
	}
	return all
}

func TestPublisherHandsOverAllOfAMessage(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 3)
		p := newPublisher(t, c.brokers, publisherConfig())
		before := time.Now().Add(-time.Second)
		mustPublish(t, p,
			outbox.Message{
				Topic: topic, OrderingKey: "k\x00\xff", Payload: []byte("one"),
				Headers: map[string]string{"b": "2", "a": "\xff\x00", "c": ""},
			},
			outbox.Message{Topic: topic})
		got := map[string]*sarama.ConsumerMessage{}
		for _, m := range arrived(t, c.brokers, topic) {
			got[string(m.Value)] = m
			if m.Timestamp.Before(before) || m.Timestamp.After(time.Now().Add(time.Second)) {
				t.Errorf("message %q has the timestamp %v", m.Value, m.Timestamp)
			}
		}
		if len(got) != 2 || got["one"] == nil || got[""] == nil {
			t.Fatalf("arrived: %v", got)
		}
		var headers []string
		for _, h := range got["one"].Headers {
			headers = append(headers, fmt.Sprintf("%s=%q", h.Key, h.Value))
		}
		if diff := cmp.Diff([]string{`a="\xff\x00"`, `b="2"`, `c=""`}, headers); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if key := got["one"].Key; string(key) != "k\x00\xff" {
			t.Errorf("key %q", key)
		}
		if m := got[""]; m.Key != nil || m.Value == nil || len(m.Headers) != 0 {
			t.Errorf("an empty message without key has key %q, value %#v, headers %v; want none, empty and none", m.Key,
				m.Value, m.Headers)
		}
	})
}

func TestPublisherAnswersForEachMessage(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 3)
		missing := topic + "-missing"
		p := newPublisher(t, c.brokers, publisherConfig())
		large := make([]byte, 1<<20)
		for round := range 5 { // sarama's own circuit breaker opens after three
			errs := publish(t, p, patience,
				outbox.Message{Topic: topic, OrderingKey: "a"}, outbox.Message{Topic: missing, OrderingKey: "b"},
				outbox.Message{Topic: topic, OrderingKey: "c", Payload: large}, outbox.Message{Topic: "a b"},
				outbox.Message{Topic: ".."}, outbox.Message{Topic: strings.Repeat("x", 250)},
				outbox.Message{Topic: topic, OrderingKey: "d"})
			for i, want := range []string{"", missing, "MaxMessageBytes", `"a b"`, `".."`, "249", ""} {
				switch err := errs[i]; {
				case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("round %d: message %d: %v; want %q", round, i, err, want)
				case outbox.IsPermanent(err) != (i >= 2 && i <= 5):
					t.Errorf("round %d: message %d: permanent: %v: %v", round, i, outbox.IsPermanent(err), err)
				case unavailable(err):
					t.Errorf("round %d: message %d: the broker is blamed: %v", round, i, err)
				}
			}
			if !errors.Is(errs[1], sarama.ErrUnknownTopicOrPartition) {
				t.Errorf("round %d: the missing topic: %v", round, errs[1])
			}
		}
		if n := len(arrived(t, c.brokers, topic)); n != 10 {
			t.Errorf("%d messages arrived, want 10", n)
		}
	})
}

// While one broker of three is away, the partitions that it leads are unavailable, and the others are served.
func TestPublisherOneBrokerAway(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	topic := testkafka.Topic(t, c.ListenAddrs(), 12)
	cfg := publisherConfig()
	g := through(cfg)
	client := dial(t, c.ListenAddrs(), cfg)
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var msgs []outbox.Message
	for i := range 60 {
		msgs = append(msgs, outbox.Message{Topic: topic, OrderingKey: fmt.Sprint("k", i), Payload: []byte("before")})
	}
	mustPublish(t, p, msgs...)
	leaders := map[string]string{} // of the keys' partitions
	for _, m := range arrived(t, c.ListenAddrs(), topic) {
		leader, err := client.Leader(topic, m.Partition)
		if err != nil {
			t.Fatal(err)
		}
		leaders[string(m.Key)] = leader.Addr()
	}
	gone := leaders["k0"] // not just any broker: kfake's leaders are random, and one may lead nothing
	g.closeTo(gone)
	dials := g.dialed()
	for range 5 {
		away := 0
		for i, err := range publish(t, p, patience, msgs...) {
			switch {
			case leaders[msgs[i].OrderingKey] == gone && !unavailable(err):
				t.Errorf("%s, whose broker is away: %v", msgs[i].OrderingKey, err)
			case leaders[msgs[i].OrderingKey] != gone && err != nil:
				t.Errorf("%s, whose broker is there: %v", msgs[i].OrderingKey, err)
			case err != nil:
				away++
			}
		}
		if away == 0 || away == len(msgs) {
			t.Fatalf("the broker that is away leads the partitions of %d of %d keys", away, len(msgs))
		}
	}
	t.Logf("%d tries to connect", g.dialed()-dials)
	g.closeTo("")
	eventually(t, func() error { return errors.Join(publish(t, p, patience, msgs...)...) })
}

// sarama's own circuit breakers keep a topic shut for ten seconds after three failures. The Publisher must send to a
// broker that is back sooner.
func TestPublisherGoesOnAtOnce(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 1)
		cfg := publisherConfig()
		g := through(cfg)
		p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: dial(t, c.brokers, cfg)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		m := outbox.Message{Topic: topic, OrderingKey: "k"}
		mustPublish(t, p, m)
		open := g.close()
		for range 5 {
			if err := publish(t, p, patience, m)[0]; !unavailable(err) {
				t.Errorf("while the brokers are away: %v", err)
			}
		}
		open()
		mustPublish(t, p, m)
	})
}

func TestPublisherClose(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 1)
		cfg := publisherConfig()
		cfg.Net.ReadTimeout = time.Hour // no call may wait for an answer that the broker does not send
		g := through(cfg)
		client := dial(t, c.brokers, cfg)
		idle := g.connections()
		p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
		if err != nil {
			t.Fatal(err)
		}
		mustPublish(t, p, outbox.Message{Topic: topic})
		defer g.hush()()
		answers := make(chan error)
		go func() { answers <- publish(t, p, patience, outbox.Message{Topic: topic})[0] }()
		elapse(100 * time.Millisecond)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, err := range []error{<-answers, publish(t, p, patience, outbox.Message{Topic: topic})[0]} {
			if !errors.Is(err, kafka.ErrPublisherClosed) || !unavailable(err) {
				t.Errorf("of a message that was not confirmed when the Publisher was closed: %v", err)
			}
		}
		eventually(t, func() error {
			if n := g.connections(); n > idle {
				return fmt.Errorf("%d connections, and the Client alone had %d", n, idle)
			}
			return nil
		})
		if client.Closed() {
			t.Error("the Client is closed; it is the user's")
		}
		if err := p.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
		unused, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
		if err != nil || unused.Close() != nil {
			t.Errorf("closed without use: %v", err)
		}
		if err := publish(t, unused, patience, outbox.Message{Topic: topic})[0]; !errors.Is(err,
			kafka.ErrPublisherClosed) {
			t.Errorf("closed without use, then used: %v", err)
		}
	})
}

func unavailable(err error) bool {
	var u *outbox.UnavailableError
	return errors.As(err, &u)
}
