package testdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Kafka returns the addresses of the brokers of a real Apache Kafka.
func Kafka(t testing.TB) (brokers []string) {
	t.Helper()
	brokers = strings.Split(server(t, "TXONCE_KAFKA", "Apache Kafka"), ",")
	answers(t, "Apache Kafka", "tcp", brokers[0])
	return brokers
}

// Topic creates a topic of so many partitions, waits until each has a leader, and deletes it when the test ends. It
// serves kfake's brokers as well.
func Topic(t testing.TB, brokers []string, partitions int32) string {
	t.Helper()
	name := randomName(t)
	err := withAdmin(brokers, func(admin sarama.ClusterAdmin) error {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
			return err
		}
		ctx, cancel := cleanUpContext(t)
		defer cancel()
		return awaitLeaders(ctx, admin, name)
	})
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		err := withAdmin(brokers, func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(name) })
		if err != nil {
			t.Errorf("delete topic %s: %v", name, err)
		}
	})
	return name
}

func withAdmin(brokers []string, do func(sarama.ClusterAdmin) error) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(brokers, cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	return do(admin)
}

// awaitLeaders waits for what CreateTopic does not: that a producer may write at once.
func awaitLeaders(ctx context.Context, admin sarama.ClusterAdmin, topic string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found, err := admin.DescribeTopics([]string{topic})
		if err == nil && ledThroughout(found) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no leader for every partition: %w", errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

func ledThroughout(topics []*sarama.TopicMetadata) bool {
	for _, topic := range topics {
		if topic.Err != sarama.ErrNoError || len(topic.Partitions) == 0 {
			return false
		}
		for _, p := range topic.Partitions {
			if p.Err != sarama.ErrNoError || p.Leader < 0 {
				return false
			}
		}
	}
	return len(topics) > 0
}
