package testkafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
)

func TestTopic(t *testing.T) {
	brokers := testkafka.Brokers(t)
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	var topic string
	t.Run("own topic", func(t *testing.T) {
		topic = testkafka.Topic(t, brokers, 3)
		partitions, err := client.Partitions(topic)
		if err != nil || len(partitions) != 3 {
			t.Errorf("Partitions(%s) = %v, %v; want 3", topic, partitions, err)
		}
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x")}); err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); client.RefreshMetadata(topic) == nil; <-tick.C {
		// metadata may name a deleted topic for a moment
		if time.Since(began) > time.Minute {
			t.Fatalf("topic %s is still there after its test", topic)
		}
	}
}
