package rabbitmq_test

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/outbox"
)

// BenchmarkPublisher sends 1,000 messages of 200 bytes per call, as a Relay does.
func BenchmarkPublisher(b *testing.B) {
	url := testrabbitmq.Server(b)
	for _, kind := range []struct {
		name string
		args amqp.Table
	}{{"classic", kinds["classic"]}, {"quorum", kinds["quorum"]}} {
		b.Run(kind.name, func(b *testing.B) {
			queue := testrabbitmq.Queue(b, url, kind.args)
			p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{Dial: dialer(url)})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			msgs := make([]outbox.Message, 1000)
			for i := range msgs {
				msgs[i] = outbox.Message{
					ID: fmt.Sprint("m", i), Topic: queue, OrderingKey: fmt.Sprint("k", i),
					Payload: make([]byte, 200),
				}
			}
			for b.Loop() {
				for _, err := range p.Publish(b.Context(), msgs) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N*len(msgs))/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
