// Package testkafka connects a test to a real Apache Kafka, and makes topics for it.
package testkafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/test/testdb"
)

// Brokers returns the addresses of a real Apache Kafka.
func Brokers(t testing.TB) (brokers []string) {
	t.Helper()
	brokers = strings.Split(testdb.Server(t, "TXONCE_KAFKA", "Apache Kafka"), ",")
	testdb.Answers(t, "Apache Kafka", "tcp", brokers[0])
	return brokers
}

// Topic creates a topic with this many partitions, waits until each has a leader, and deletes the topic when the test
// ends. It also works with kfake's brokers.
func Topic(t testing.TB, brokers []string, partitions int32) string {
	t.Helper()
	name := testdb.RandomName(t)
	err := withAdmin(brokers, func(client sarama.Client, admin sarama.ClusterAdmin) error {
		ctx, cancel := testdb.CleanUpContext(t)
		defer cancel()
		if err := createTopic(ctx, admin, name, partitions); err != nil {
			return err
		}
		return awaitLeaders(ctx, client, name, partitions)
	})
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		err := withAdmin(brokers, func(_ sarama.Client, admin sarama.ClusterAdmin) error { return admin.DeleteTopic(name) })
		if err != nil {
			t.Errorf("delete topic %s: %v", name, err)
		}
	})
	return name
}

// createTopic retries while the controller has fenced its only broker because it paused, and when an answer comes too
// late. No other test makes a topic of this name, so an existing one was made by an earlier try.
func createTopic(ctx context.Context, admin sarama.ClusterAdmin, name string, partitions int32) error {
	for {
		err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
		switch {
		case errors.Is(err, sarama.ErrTopicAlreadyExists):
			return nil
		case !errors.Is(err, sarama.ErrInvalidReplicationFactor) && !errors.Is(err, sarama.ErrRequestTimedOut):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func withAdmin(brokers []string, do func(sarama.Client, sarama.ClusterAdmin) error) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the default of 3 s
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	defer admin.Close() // also closes the client
	return do(client, admin)
}

// awaitLeaders waits until every partition's leader answers. CreateTopic returns earlier, and metadata names a leader
// before it is ready.
func awaitLeaders(ctx context.Context, client sarama.Client, topic string, partitions int32) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.RefreshMetadata(topic)
		for p := int32(0); p < partitions && err == nil; p++ {
			_, err = client.GetOffset(topic, p, sarama.OffsetNewest)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no leader for every partition: %w", errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}
