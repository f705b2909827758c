package watermilltx_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/outbox"
)

func TestToMessage(t *testing.T) {
	at := time.Now().UTC()
	raw := message.NewMessage("u", []byte("p"))
	raw.Metadata.Set(outbox.HeaderEnqueued, at.Format(time.RFC3339Nano))
	raw.Metadata.Set(watermilltx.MetadataKey, "k")
	raw.Metadata.Set("txonce-binary-not encoded", "stays")
	msg := watermilltx.ToMessage(raw)
	if !msg.Time.Equal(at) || msg.OrderingKey != "k" || msg.ID != "" || msg.Position != "/u" ||
		msg.Headers["txonce-binary-not encoded"] != "stays" {
		t.Errorf("%+v", msg)
	}
	if len(raw.Metadata) != 3 {
		t.Errorf("the message has changed: %v", raw.Metadata)
	}
}

// Dead letters without a key are told apart by Position, also where watermill says nothing.
func TestPositionsDiffer(t *testing.T) {
	a, b := message.NewMessage("", nil), message.NewMessage("", nil)
	if watermilltx.ToMessage(a).Position == watermilltx.ToMessage(b).Position {
		t.Error("two messages without UUID have one Position")
	}
}
