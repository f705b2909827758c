package debezium_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/outbox"
)

// The official SDK receives from Kafka what a relay publishes in the CloudEvents format.
func TestCloudEventsPublisher(t *testing.T) {
	b := newBox(t)
	before := time.Now().Add(-time.Minute)
	b.enqueue(t,
		outbox.Message{
			ID: "m1", Topic: b.topic, OrderingKey: "order 7", Payload: []byte(`{"amount":5}`),
			Headers: map[string]string{
				"content-type": "application/json", "ce_type": "com.example.charged",
				"ce_tenant": "acme", "own": "x",
			},
		},
		outbox.Message{ID: "m2", Topic: b.topic, OrderingKey: "\xff\x00", Payload: []byte{0, 1, 2}},
		outbox.Message{ID: "m3", Topic: b.topic})
	b.relay(t, outbox.CloudEvents("/billing"), 3)

	cfg := kafka.NewConfig()
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	protocol, err := kafka_sarama.NewConsumer(b.brokers, cfg, "group-"+b.topic, b.topic)
	if err != nil {
		t.Fatal(err)
	}
	defer protocol.Close(context.Background())
	client, err := cloudevents.NewClient(protocol)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := map[string]cloudevents.Event{}
	received := make(chan cloudevents.Event)
	stopped := make(chan error, 1)
	go func() {
		stopped <- client.StartReceiver(ctx, func(e cloudevents.Event) {
			select {
			case received <- e:
			case <-ctx.Done():
			}
		})
	}()
	for len(got) < 3 {
		select {
		case e := <-received:
			if err := e.Validate(); err != nil {
				t.Errorf("event %s: %v", e.ID(), err)
			}
			got[e.ID()] = e
		case err := <-stopped:
			t.Fatalf("the receiver stopped: %v", err)
		case <-ctx.Done():
			t.Fatalf("received %v", got)
		}
	}
	cancel()
	<-stopped

	for id, want := range map[string]string{
		"m1": `1.0 /billing com.example.charged "order 7" "application/json" acme {"amount":5}`,
		"m2": fmt.Sprintf("1.0 /billing %s \"\" \"\" <nil> \x00\x01\x02", b.topic),
		"m3": fmt.Sprintf(`1.0 /billing %s "" "" <nil> `, b.topic),
	} {
		e := got[id]
		have := fmt.Sprintf("%s %s %s %q %q %v %s", e.SpecVersion(), e.Source(), e.Type(), e.Subject(),
			e.DataContentType(), e.Extensions()["tenant"], e.Data())
		if have != want {
			t.Errorf("%s: %q, want %q", id, have, want)
		}
		if e.Time().Before(before) || e.Time().After(time.Now().Add(time.Minute)) {
			t.Errorf("%s: time %v", id, e.Time())
		}
	}
}
