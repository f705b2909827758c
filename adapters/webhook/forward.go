package webhook

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/aliases"
	"github.com/txonce/txonce/outbox"
)

// Headers that an Inbox adds to the messages that it forwards. A consumer that receives them from a broker reads them
// so:
//
//	consumer.Config[pgx.Tx]{
//		Key:         consumer.HeaderKey(webhook.HeaderID),
//		Tenant:      consumer.HeaderKey(webhook.HeaderTenant),
//		Fingerprint: webhook.ForwardedFingerprint,
//		…
//	}
//
// There the broker's Message.Time is the time of publication, and Message.Topic is the broker's. Message.Aliases are
// not set: only the Inbox claims them. A Worker restores all three.
const (
	HeaderID     = "inbox-id"     // Message.ID
	HeaderTenant = "inbox-tenant" // Message.Tenant
	HeaderType   = "inbox-type"   // Message.Topic: the event's type
	HeaderTime   = "inbox-time"   // Message.Time, RFC 3339 in UTC; absent if it is unknown
	// Message.Fingerprint, 16 hexadecimal digits; absent if the Verifier gave none
	HeaderFingerprint = "inbox-fingerprint"
	HeaderAliases     = "inbox-aliases" // Message.Aliases, as a JSON array of strings; absent if there are none

	headerPrefix = "inbox-"
)

// forwarded returns the outbox message for an event. Its ID is derived from the event's key by the handler's scope.
func forwarded(topic string, msg *consumer.Message) (outbox.Message, error) {
	headers := make(map[string]string, len(msg.Headers)+6)
	for name, value := range msg.Headers {
		if strings.HasPrefix(strings.ToLower(name), headerPrefix) {
			return outbox.Message{}, fmt.Errorf("%w: header %q: names that begin with %q are reserved",
				outbox.ErrBadMessage, name, headerPrefix)
		}
		headers[name] = value
	}
	headers[HeaderID], headers[HeaderTenant], headers[HeaderType] = msg.ID, msg.Tenant, msg.Topic
	if !msg.Time.IsZero() {
		headers[HeaderTime] = msg.Time.UTC().Format(time.RFC3339Nano)
	}
	if msg.Fingerprint != nil {
		headers[HeaderFingerprint] = hex.EncodeToString(msg.Fingerprint[:])
	}
	if len(msg.Aliases) > 0 {
		headers[HeaderAliases] = aliases.Join(msg.Aliases)
	}
	return outbox.Message{Topic: topic, OrderingKey: msg.OrderingKey, Payload: msg.Payload, Headers: headers}, nil
}

// restored is the inverse of forwarded. A message that was not made by an Inbox is Malformed. The headers of the outbox
// and the Inbox stay, so that a Config for a broker fits as well.
func restored(m outbox.Message) *consumer.Message {
	msg := &consumer.Message{
		ID: m.Headers[HeaderID], Tenant: m.Headers[HeaderTenant], Topic: m.Headers[HeaderType],
		OrderingKey: m.OrderingKey,
		Position:    "outbox/" + m.Topic + "/" + m.ID, Payload: m.Payload, Headers: maps.Clone(m.Headers),
	}
	if msg.ID == "" {
		msg.Malformed = fmt.Errorf("webhook: no header %s: the message was not forwarded by an Inbox", HeaderID)
	}
	var err error
	if msg.Aliases, err = aliases.Split(m.Headers[HeaderAliases]); err != nil {
		msg.Malformed = errors.Join(msg.Malformed, fmt.Errorf("webhook: header %s: %w", HeaderAliases, err))
	}
	if text, found := m.Headers[HeaderTime]; found {
		if msg.Time, err = time.Parse(time.RFC3339Nano, text); err != nil {
			msg.Malformed = errors.Join(msg.Malformed, fmt.Errorf("webhook: header %s: %w", HeaderTime, err))
		}
	}
	if text, found := m.Headers[HeaderFingerprint]; found {
		fingerprint, err := parseFingerprint(text)
		if err != nil {
			msg.Malformed = errors.Join(msg.Malformed, err)
		} else {
			msg.Fingerprint = &fingerprint
		}
	}
	return msg
}

func parseFingerprint(text string) (f dedup.Fingerprint, err error) {
	if len(text) == hex.EncodedLen(len(f)) {
		if _, err = hex.Decode(f[:], []byte(text)); err == nil {
			return f, nil
		}
	}
	return f, fmt.Errorf("webhook: header %s is %.40q: want %d hexadecimal digits", HeaderFingerprint, text,
		hex.EncodedLen(len(f)))
}

// ForwardedFingerprint is a consumer.FingerprintFunc that returns what the Verifier gave. If it gave none, the payload
// is hashed.
func ForwardedFingerprint(msg *consumer.Message) (dedup.Fingerprint, error) {
	text, found := msg.Headers[HeaderFingerprint]
	if !found {
		return dedup.FingerprintOf(msg.Payload), nil
	}
	return parseFingerprint(text)
}
