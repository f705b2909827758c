package consumer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/observe"
)

// JSON returns a Handler that decodes the payload as JSON into a T and calls fn with it. A payload that cannot be
// decoded is a Permanent error, so the message is parked at once, with observe.CauseUndecodable as its Cause. JSON
// members that T has no field for are ignored.
func JSON[T, TTx any](fn func(ctx context.Context, tx TTx, body T) error) Handler[TTx] {
	return Decode(func(payload []byte) (body T, err error) {
		err = json.Unmarshal(payload, &body)
		return body, err
	}, fn)
}

// JSONMessage is like JSON, but also passes the message, for its headers for example. fn must not keep or change the
// message.
func JSONMessage[T, TTx any](fn func(ctx context.Context, tx TTx, msg *Message, body T) error) Handler[TTx] {
	return func(ctx context.Context, tx TTx, msg *Message) error {
		return JSON(func(ctx context.Context, tx TTx, body T) error { return fn(ctx, tx, msg, body) })(ctx, tx, msg)
	}
}

// Decode is like JSON, with another decoder, such as one for Protobuf or Avro.
func Decode[T, TTx any](decode func(payload []byte) (T, error),
	fn func(ctx context.Context, tx TTx, body T) error,
) Handler[TTx] {
	return func(ctx context.Context, tx TTx, msg *Message) error {
		body, err := decode(msg.Payload)
		if err != nil {
			return refuse(observe.CauseUndecodable, fmt.Errorf("consumer: decode payload as %T: %w", body, err))
		}
		return fn(ctx, tx, body)
	}
}
