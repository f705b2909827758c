package webhook

import (
	"context"
	"fmt"
	"maps"

	"github.com/txonce/txonce/consumer"
)

// ByTopic returns a Handler that calls the handler for the event's type. An event of a type without a handler is
// claimed and acknowledged, because senders add types at any time. ByTopic panics if a handler is nil.
//
// The type is Message.Topic, or HeaderType if an Inbox forwarded the event.
func ByTopic[TTx any](handlers map[string]consumer.Handler[TTx]) consumer.Handler[TTx] {
	handlers = maps.Clone(handlers)
	for topic, handle := range handlers {
		if handle == nil {
			panic(fmt.Sprintf("webhook: ByTopic: the handler of %q is nil", topic))
		}
	}
	return func(ctx context.Context, tx TTx, msg *consumer.Message) error {
		topic := msg.Topic
		if forwarded, found := msg.Headers[HeaderType]; found {
			topic = forwarded
		}
		if handle := handlers[topic]; handle != nil {
			return handle(ctx, tx, msg)
		}
		return nil
	}
}
