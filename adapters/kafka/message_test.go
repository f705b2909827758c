package kafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

func TestToMessage(t *testing.T) {
	produced := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, tt := range []struct {
		name string
		raw  sarama.ConsumerMessage
		want consumer.Message
	}{
		{
			name: "all there is",
			raw: sarama.ConsumerMessage{
				Topic: "orders", Partition: 3, Offset: 1042, Key: []byte("k"), Value: []byte("v"), Timestamp: produced,
				Headers: []*sarama.RecordHeader{
					{Key: []byte("a"), Value: []byte("1")},
					{Key: []byte("a"), Value: []byte{0xff}},
					nil,
				},
			},
			want: consumer.Message{
				Topic: "orders", Position: "orders/3/1042", OrderingKey: "k", Payload: []byte("v"), Time: produced,
				Attempt: 1,
				Headers: map[string]string{"a": "\xff"},
			},
		},
		{
			name: "a tombstone without a key",
			raw:  sarama.ConsumerMessage{Topic: "orders", Timestamp: produced},
			want: consumer.Message{Topic: "orders", Position: "orders/0/0", Time: produced, Attempt: 1},
		},
		{
			name: "no time",
			raw:  sarama.ConsumerMessage{Topic: "orders", Value: []byte{}},
			want: consumer.Message{Topic: "orders", Position: "orders/0/0", Payload: []byte{}, Attempt: 1},
		},
		{
			// -1, then the distance to the batch's first
			name: "no time, as sarama adds up what the protocol has for it",
			raw:  sarama.ConsumerMessage{Topic: "orders", Timestamp: time.Time{}.Add(7 * time.Millisecond)},
			want: consumer.Message{Topic: "orders", Position: "orders/0/0", Attempt: 1},
		},
		{
			name: "time zero",
			raw:  sarama.ConsumerMessage{Topic: "orders", Timestamp: time.Unix(0, 0)},
			want: consumer.Message{Topic: "orders", Position: "orders/0/0", Attempt: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Raw = &tt.raw
			if diff := cmp.Diff(&tt.want, kafka.ToMessage(&tt.raw),
				cmp.Comparer(func(a, b *sarama.ConsumerMessage) bool { return a == b })); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
