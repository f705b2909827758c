package rabbitmq

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// FuzzToMessage: whatever the headers hold, a message has one meaning, and the copy that puts it off has the same: what
// keys are derived from must not change on the way.
func FuzzToMessage(f *testing.F) {
	f.Add("id", "orders.new", "name", "value", []byte("\xff"), int64(3), true)
	f.Add("", "", "CC", "elsewhere", []byte("key"), int64(-1), false)
	f.Add("", "k", headerStamp, "no table", []byte(nil), int64(1<<62), true)
	f.Add("i", "k", headerDeliveries, "x-death", []byte("b"), int64(7), false)
	f.Add("i", "k", "user-id", "guest", []byte{0}, int64(0), false)
	f.Fuzz(func(t *testing.T, id, key, name, text string, bytes []byte, n int64, again bool) {
		for _, v := range []any{
			text, bytes, n, int32(n), n > 0, nil, float64(n) / 3, time.Unix(n%1e9, 0),
			amqp.Decimal{Scale: uint8(n), Value: int32(n)},
			amqp.Table{name: text, "n": n},
			[]any{text, bytes, n, nil, amqp.Table{name: bytes}},
			amqp.Table{"attempt": n, "kept": amqp.Table{name: text}},
		} {
			raw := &amqp.Delivery{
				MessageId: id, RoutingKey: key, Headers: amqp.Table{name: v, HeaderKey: bytes, "x-death": []any{text}},
				UserId: text, Type: text,
				Timestamp: time.Unix(n%1e9, 0), Redelivered: again, Body: bytes,
			}
			one := ToMessage("q", raw)
			if one.Attempt < 1 || one.Topic == "" || one.Position == "" || one.ID != id {
				t.Fatalf("%#v is %+v", raw, one)
			}
			copied := deferredCopy(&delivery{raw: raw, msg: one}, 9)
			for _, header := range serverHeaders {
				if _, there := copied.Headers[header]; there {
					t.Fatalf("the copy has %s, which the server takes for its own", header)
				}
			}
			two := ToMessage("q", &amqp.Delivery{
				MessageId: copied.MessageId, RoutingKey: "q", Headers: copied.Headers, UserId: copied.UserId,
				Type: copied.Type, Timestamp: copied.Timestamp,
				Body: copied.Body,
			})
			if two.Attempt != 9 {
				t.Fatalf("the copy is attempt %d, want 9", two.Attempt)
			}
			want, got := *one, *two
			want.Attempt, want.Raw, got.Attempt, got.Raw = 0, nil, 0, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("the copy differs (-original +copy):\n%s", diff)
			}
		}
	})
}
