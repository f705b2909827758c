package kafka_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/dedup/deduptest"
)

// createAgain deletes the topic and creates it again.
func (g *group) createAgain(t *testing.T, partitions int32) {
	t.Helper()
	eventually(t, func() error {
		admin, err := sarama.NewClusterAdminFromClient(g.client)
		if err != nil {
			return err
		}
		if err := admin.DeleteTopic(g.topic); err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return err
		}
		return admin.CreateTopic(g.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
	})
	eventually(t, func() error {
		if err := g.client.RefreshMetadata(g.topic); err != nil {
			return err
		}
		_, err := g.client.Leader(g.topic, partitions-1)
		return err
	})
}

// A topic is deleted and created again: offsets mean other messages then. Each message of the new one is handled.
func TestTopicCreatedAgain(t *testing.T) {
	for _, w := range []struct {
		name       string
		stopped    bool // while no Subscriber runs
		before     int  // how many messages the former topic had
		after      int  // how many the new one gets at once
		late       int  // and how many when the Subscriber has noticed
		partitions int32
	}{
		{"fewer messages while it runs", false, 50, 20, 10, 1},
		{"as many while it runs", false, 50, 50, 10, 1},
		{"more while it runs", false, 50, 80, 10, 1},
		{"none at first while it runs", false, 50, 0, 30, 1},
		{"the former one was empty", false, 0, 30, 10, 1},
		{"more partitions while it runs", false, 50, 60, 10, 3},
		{"fewer while it is stopped", true, 50, 20, 10, 1},
		{"as many while it is stopped", true, 50, 50, 10, 1},
		{"more while it is stopped", true, 50, 80, 10, 1},
		{"more partitions while it is stopped", true, 50, 60, 10, 3},
	} {
		t.Run(w.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
				g := c.group(t, 1)
				e := &effects{db: deduptest.NewDatabase()}
				m := e.join(t, g, "billing", strategy)
				g.produce(t, text(0, some(0, w.before)...)...)
				e.await(t, "billing", some(0, w.before)...)
				g.awaitConsumed(t)
				if w.stopped {
					if err := m.stop(); err != nil {
						t.Fatal(err)
					}
				}
				g.createAgain(t, w.partitions)
				g.produce(t, text(w.partitions-1, some(1000, 1000+w.after)...)...)
				if w.stopped {
					m = e.join(t, g, "billing", strategy)
				}
				e.await(t, "billing", some(1000, 1000+w.after)...)
				g.produce(t, text(0, some(2000, 2000+w.late)...)...)
				e.await(t, "billing", some(2000, 2000+w.late)...)
				if err := m.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
