package watermilltx_test

import (
	"bytes"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
)

// TestForwarderTopicIsEmptied: what watermill's own forwarder.Publisher has written, once as watermill-sql delivers it
// and once more, is in the outbox once, under its UUID; what is no envelope is parked and holds up nothing.
func TestForwarderTopicIsEmptied(t *testing.T) {
	eachBase(t, func(t *testing.T, b *base) {
		topic := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
		wrapped := forwarder.NewPublisher(topic, forwarder.PublisherConfig{ForwarderTopic: "forwarder"})
		one := message.NewMessage(newUUID(), []byte("\x00binary\xff"))
		one.Metadata.Set("m", "v")
		one.Metadata.Set(watermilltx.MetadataKey, "key")
		two := message.NewMessage(newUUID(), nil)
		long := message.NewMessage(strings.Repeat("x", 300), []byte("no ID has room for this UUID"))
		for topicName, msg := range map[string]*message.Message{"a": one, "b": two, "c": long} {
			if err := wrapped.Publish(topicName, msg); err != nil {
				t.Fatal(err)
			}
		}
		if err := wrapped.Publish("d", one); err != nil { // the same UUID to another topic is another message
			t.Fatal(err)
		}
		if err := wrapped.Publish("b", two); err != nil { // and to the same topic it is not
			t.Fatal(err)
		}
		for _, garbage := range []string{
			"not an envelope", `{"uuid":"u","payload":null}`, `{"destination_topic":"a"}`,
			"null",
		} {
			if err := topic.Publish("forwarder", message.NewMessage(newUUID(), []byte(garbage))); err != nil {
				t.Fatal(err)
			}
		}

		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "forwarder", Store: b.Store, Key: watermilltx.EnvelopeKey, Handle: watermilltx.Unwrap(b.Store),
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		router := newRouter(t, watermill.NopLogger{})
		router.AddConsumerHandler("forwarder", "forwarder", topic,
			newHandler(t, watermilltx.HandlerConfig{Processor: c}).Handle)
		startRouter(t, router)
		eventually(t, func() bool {
			all, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
			return err == nil && len(all) == 5
		})

		got := map[string]string{}
		for _, m := range b.wantPublished(3) {
			got[m.Topic] = m.ID
			if m.Topic == "a" && (!bytes.Equal(m.Payload, one.Payload) || m.OrderingKey != "key" ||
				m.Headers["m"] != "v" || m.Headers[watermilltx.MetadataKey] != "") {
				t.Errorf("published %+v", m.Message)
			}
		}
		if want := map[string]string{"a": one.UUID, "b": two.UUID, "d": one.UUID}; !maps.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		var causes []string
		all, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			causes = append(causes, string(l.Cause)+": "+l.Error)
		}
		for _, want := range []string{
			"destination_topic is missing", "uuid is empty", "payload is null",
			"invalid character", "at most 255 bytes",
		} {
			if !slices.ContainsFunc(causes, func(c string) bool { return strings.Contains(c, want) }) {
				t.Errorf("nothing was parked for %q: %q", want, causes)
			}
		}
	})
}

func FuzzReadEnvelope(f *testing.F) {
	f.Add([]byte(`{"destination_topic":"a","uuid":"u","payload":"AA==","metadata":{"m":"v"}}`))
	f.Add([]byte(`{"destination_topic":1}`))
	f.Add([]byte(` null `))
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := watermilltx.ReadEnvelope(payload)
		if err == nil && (e.Topic == "" || e.UUID == "" || e.Message().ID != e.UUID) {
			t.Errorf("%q is taken for %+v", payload, e)
		}
		if err != nil && (!errors.Is(err, watermilltx.ErrEnvelope) || !consumer.IsPermanent(err)) {
			t.Errorf("error %v", err)
		}
	})
}
