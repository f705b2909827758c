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
	err := withAdmin(brokers, func(client sarama.Client, admin sarama.ClusterAdmin) error {
		ctx, cancel := cleanUpContext(t)
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

// createTopic tries again where the controller has no broker for the topic, since it has fenced the one that stood still for a while, and
// where it did not say in time what became of it. Nobody else makes a topic of this name: one that is there was made by an earlier try.
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
	cfg.Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the 3 s that are the default
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	defer admin.Close() // and with it the client
	return do(client, admin)
}

// awaitLeaders waits for what CreateTopic does not: that each partition's leader knows it is. Metadata names it before.
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
