package consumer

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Message is one delivery. A Subscriber fills it in. Handlers must not change it, nor keep it after they return.
type Message struct {
	ID    string // business key, if the source states one; Config.Key decides whether it is used
	Topic string // where it was published
	// ordering key: messages with the same OrderingKey are handled in order; empty: in any order
	OrderingKey string
	Position    string            // its place in the broker, the same on every delivery: "orders/3/1042"
	Payload     []byte            // the content, as it was published
	Headers     map[string]string // values are bytes; if a name is repeated, the last value counts
	Time        time.Time         // when the message was created, the same on every delivery; zero: unknown
	// 1 on the first delivery; the source says which later deliveries add 1; less than 1 counts as 1
	Attempt int
	// processes were killed while they had this message, or one near it: it is tried alone, and parked as crashed after
	// a few processes were killed by it
	Suspect bool
	Raw     any // the broker's own message, for what this struct has no field for

	// why the Subscriber could not read the message, which is then parked; other fields may be incomplete
	Malformed error

	// For sources that authenticate messages. These fields take precedence over Config. In a replay they are what the
	// replay claims.
	Tenant string // empty: from Config.Tenant
	// hash of the content that is the same on every delivery; nil: from Config.Fingerprint
	Fingerprint *dedup.Fingerprint
	// further keys: if ID is new and one of them is known, the message is parked as known content
	Aliases []string

	// GiveUpAt is when the source may stop delivering the message again. The first failure that counts at this time or
	// later parks the message, whatever Attempt is. The time of the failure decides: a handler may fail long after the
	// message was delivered. Zero: no such time.
	GiveUpAt time.Time
}

// Handler does the work of one message in tx. After nil, the work is committed together with the message's claim. An
// error or a panic rolls both back. A Handler may run several times for one message, but only one run is committed, so
// everything it does outside of tx may happen more than once.
type Handler[TTx any] func(ctx context.Context, tx TTx, msg *Message) error

// BatchHandler does the work of several messages in tx: of all or of none. All of them are new, and they are in the
// order of their delivery. After an error it is called with smaller batches, down to single messages. After a
// *MessageError it is called with the message that failed alone, and with the others. A crash before COMMIT leaves
// nothing of the batch.
//
// One statement for the whole batch must be right when several messages concern one row. UPDATE … FROM unnest(…)
// changes a row only once, so the effects of the other messages are lost without an error: add them up first, with
// GROUP BY.
type BatchHandler[TTx any] func(ctx context.Context, tx TTx, msgs []*Message) error

// Processor is the part of a Consumer that subscribers call. Its answer says what to do with the delivery:
//
//   - nil: the effects are committed, by this delivery or an earlier one, or the message is parked. Acknowledge it.
//   - a *RetryError: nothing was committed. Deliver the message again.
//   - any other error: the consumer gave the message up and did not keep it. Reject it, so that the broker can keep it
//     in its dead-letter queue. Never drop it.
//
// Process sleeps between attempts until ctx ends. It is safe for concurrent use.
type Processor interface {
	Process(ctx context.Context, msg *Message) error
}
