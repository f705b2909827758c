// Package watermillbrokers tests watermilltx with watermill's own clients of Kafka and RabbitMQ, which are in no other
// go.mod, and with the settings that watermilltx's documentation demands of them.
package watermillbrokers

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// check demands that p is refused until the user states that it confirms, and that its messages are confirmed then.
func check(t *testing.T, p message.Publisher, err error, topic string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if _, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p}); err == nil ||
		!strings.Contains(err.Error(), "PublisherConfig.Confirms") {
		t.Errorf("without Confirms: %v", err)
	}
	ours, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p, Confirms: true})
	if err != nil {
		t.Fatal(err)
	}
	if errs := ours.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic, OrderingKey: "k", Payload: []byte("p")}}); errs[0] != nil {
		t.Errorf("publish: %v", errs)
	}
}

func TestKafka(t *testing.T) {
	brokers := strings.Split(testdb.Server(t, "TXONCE_KAFKA", "TXONCE_KAFKA"), ",")
	topic := "interop-" + watermill.NewShortUUID()
	cfg := sarama.NewConfig()
	cfg.Admin.Timeout = 25 * time.Second // a Kafka may pause for longer than the 3 s that are the default
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close() // and with it the client
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := admin.DeleteTopic(topic); err != nil {
			t.Error(err)
		}
	}()
	awaitLeaders(t, client, topic, 3)
	cfg = kafka.DefaultSaramaSyncPublisherConfig()
	cfg.Producer.RequiredAcks, cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	byKey := func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get(watermilltx.MetadataKey), nil
	}
	p, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: brokers, Marshaler: kafka.NewWithPartitioningMarshaler(byKey), OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	check(t, p, err, topic)
}

// awaitLeaders waits until the leader of each partition knows that it is: metadata names it before.
func awaitLeaders(t *testing.T, client sarama.Client, topic string, partitions int32) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-tick.C {
		err := client.RefreshMetadata(topic)
		for p := int32(0); p < partitions && err == nil; p++ {
			_, err = client.GetOffset(topic, p, sarama.OffsetNewest)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestRabbitMQ(t *testing.T) {
	cfg := amqp.NewDurablePubSubConfig(testdb.Server(t, "TXONCE_RABBITMQ", "TXONCE_RABBITMQ"), nil)
	cfg.Publish.ConfirmDelivery = true
	p, err := amqp.NewPublisher(cfg, watermill.NopLogger{})
	check(t, p, err, "interop-"+watermill.NewShortUUID())
}
