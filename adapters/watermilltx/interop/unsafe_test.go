// Package interop tests watermilltx with watermill's own clients of Kafka and RabbitMQ, which are in no other go.mod: a Publisher
// recognises unsafe settings in fields that these modules do not export, and a new version may rename them.
package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/outbox"
)

// address is what the environment, or else .services/env, says.
func address(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server; -short runs only what needs nothing but Go")
	}
	if a := os.Getenv(name); a != "" {
		return a
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", ".services", "env"))
	if err != nil {
		t.Fatalf("%s is not set, and %v: run make services-up", name, err)
	}
	for line := range strings.Lines(string(text)) {
		if n, value, _ := strings.Cut(strings.TrimSpace(line), "="); n == name {
			return strings.Trim(value, "'")
		}
	}
	t.Fatalf("%s is not set and not in .services/env: run make services-up", name)
	return ""
}

// check makes a Publisher of each, and demands what it says of it: "" if it must be accepted.
func check(t *testing.T, p message.Publisher, err error, topic, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	ours, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p})
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want == "":
		if errs := ours.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic, Key: "k", Payload: []byte("p")}}); errs != nil && errs[0] != nil {
			t.Errorf("publish: %v", errs)
		}
	case err == nil || !strings.Contains(err.Error(), want):
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := watermilltx.NewPublisher(watermilltx.PublisherConfig{Publisher: p, AcceptedRisks: []watermilltx.Risk{watermilltx.RiskUnconfirmed}}); err != nil {
		t.Errorf("allowed, and refused: %v", err)
	}
}

func TestKafka(t *testing.T) {
	brokers := strings.Split(address(t, "TXONCE_KAFKA"), ",")
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
	for _, test := range []struct {
		want string
		set  func(*sarama.Config)
	}{
		{"Producer.RequiredAcks", func(*sarama.Config) {}}, // watermill's own default
		{"Producer.Idempotent", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForAll }},
		{"", func(c *sarama.Config) {
			c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
		}},
	} {
		cfg := kafka.DefaultSaramaSyncPublisherConfig()
		test.set(cfg)
		byKey := func(_ string, msg *message.Message) (string, error) {
			return msg.Metadata.Get(watermilltx.MetadataKey), nil
		}
		p, err := kafka.NewPublisher(kafka.PublisherConfig{
			Brokers: brokers, Marshaler: kafka.NewWithPartitioningMarshaler(byKey), OverwriteSaramaConfig: cfg,
		}, watermill.NopLogger{})
		check(t, p, err, topic, test.want)
	}
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
	for _, test := range []struct {
		want     string
		confirms bool
	}{{"Publish.ConfirmDelivery", false}, {"", true}} {
		cfg := amqp.NewDurablePubSubConfig(address(t, "TXONCE_RABBITMQ"), nil)
		cfg.Publish.ConfirmDelivery = test.confirms
		p, err := amqp.NewPublisher(cfg, watermill.NopLogger{})
		check(t, p, err, "interop-"+watermill.NewShortUUID(), test.want)
	}
}
