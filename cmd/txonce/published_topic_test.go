package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
)

// board is a topic of a real Kafka with messages of known times.
type board struct {
	brokers []string
	topic   string
	admin   sarama.ClusterAdmin
}

func newBoard(t *testing.T, partitions int32) *board {
	t.Helper()
	b := &board{brokers: testkafka.Brokers(t)}
	b.topic = testkafka.Topic(t, b.brokers, partitions)
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_4_0_0
	admin, err := sarama.NewClusterAdmin(b.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	b.admin = admin
	return b
}

// produce writes a message of each of these ages, in minutes, to a partition.
func (b *board) produce(t *testing.T, partition int32, now time.Time, ages ...int) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_4_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(b.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for _, age := range ages {
		m := &sarama.ProducerMessage{
			Topic: b.topic, Partition: partition, Value: sarama.StringEncoder(fmt.Sprint(age)),
			Timestamp: now.Add(-time.Duration(age) * time.Minute),
		}
		if _, _, err := producer.SendMessage(m); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *board) open(t *testing.T) audit.Topic {
	t.Helper()
	topic, done, err := publishedKafka(t.Context(), strings.Join(b.brokers, ","), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return topic
}

func read(t *testing.T, topic audit.Topic, since, until time.Time) (ages []string) {
	t.Helper()
	source, err := topic.Read(t.Context(), since, until)
	if err != nil {
		t.Fatal(err)
	}
	for {
		msgs, err := source.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			slices.Sort(ages)
			return ages
		}
		for _, m := range msgs {
			ages = append(ages, string(m.Payload))
		}
	}
}

// A topic is read between two times, and up to where it ended when the reading began.
func TestReadPublished(t *testing.T) {
	t.Parallel()
	b, now := newBoard(t, 3), time.Now()
	b.produce(t, 0, now, 50, 40, 30, 20)
	b.produce(t, 1, now, 45, 10)
	topic := b.open(t)
	at := func(age int) time.Time { return now.Add(-time.Duration(age) * time.Minute) }
	for _, test := range []struct {
		since, until time.Time
		want         string
	}{
		{time.Time{}, time.Time{}, "[10 20 30 40 45 50]"},
		{at(35), time.Time{}, "[10 20 30]"},
		{at(42), at(25), "[30 40]"},
		{at(46), at(42), "[45]"},
		{time.Time{}, at(42), "[45 50]"},
		{at(5), time.Time{}, "[]"},
		{at(60), at(55), "[]"},
	} {
		if got := fmt.Sprint(read(t, topic, test.since, test.until)); got != test.want {
			t.Errorf("from %v until %v: %s, want %s", test.since, test.until, got, test.want)
		}
	}
	source, err := topic.Read(t.Context(), at(25), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	b.produce(t, 0, now, 1)
	n := 0
	for {
		msgs, err := source.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			break
		}
		n += len(msgs)
	}
	if n != 2 {
		t.Errorf("%d messages, want the 2 that were there when the reading began", n)
	}
}

// What a topic has deleted is known from the first messages that are left, and otherwise from its retention.
func TestKeptByTopic(t *testing.T) {
	t.Parallel()
	b, now := newBoard(t, 2), time.Now().Truncate(time.Millisecond)
	b.produce(t, 0, now, 50, 40, 30, 20)
	b.produce(t, 1, now, 45, 35)
	kept := func() time.Time {
		t.Helper()
		since, err := b.open(t).Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return since
	}
	if since := kept(); !since.IsZero() {
		t.Errorf("kept since %v, and nothing was deleted", since)
	}
	for _, deleted := range []struct {
		partition int32
		before    int64
		want      time.Time
	}{
		{0, 2, now.Add(-30 * time.Minute)},
		{1, 1, now.Add(-30 * time.Minute)},
		{0, 3, now.Add(-20 * time.Minute)},
		{0, 4, now.Add(-35 * time.Minute)}, // partition 0 is empty: only the retention of 7 days says something
	} {
		if err := b.admin.DeleteRecords(b.topic, map[int32]int64{deleted.partition: deleted.before}); err != nil {
			t.Fatal(err)
		}
		if since := kept(); !since.Equal(deleted.want) {
			t.Errorf("kept since %v, want %v", since, deleted.want)
		}
	}
}

// A topic that keeps only the last message of each key, or that does not exist, is refused, and not created.
func TestPublishedIsRefused(t *testing.T) {
	t.Parallel()
	b := newBoard(t, 1)
	compact := "compact"
	if err := b.admin.AlterConfig(sarama.TopicResource, b.topic, map[string]*string{"cleanup.policy": &compact},
		false); err != nil {
		t.Fatal(err)
	}
	address := strings.Join(b.brokers, ",")
	if _, _, err := publishedKafka(t.Context(), address, b.topic); err == nil || !strings.Contains(err.Error(),
		"cleanup.policy is compact") {
		t.Errorf("compacted: %v", err)
	}
	missing := b.topic + "_missing"
	if _, _, err := publishedKafka(t.Context(), address, missing); err == nil || !strings.Contains(err.Error(),
		missing) {
		t.Errorf("missing: %v", err)
	}
	topics, err := b.admin.ListTopics()
	if err != nil {
		t.Fatal(err)
	}
	if _, made := topics[missing]; made {
		t.Errorf("topic %s was created", missing)
	}
}
