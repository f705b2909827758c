package pubsubhook

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// source begins each Tenant.
const source = "pubsub"

// maxBody is the size of the largest delivery: a message has at most 10 MB, and base64 makes a third more of it.
const maxBody = 16 << 20

// Verifier verifies the deliveries of push subscriptions. It is safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys *keys
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, keys: newKeys(cfg.Transport)}, nil
}

// Source describes Pub/Sub.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: source, Horizon: v.cfg.Horizon, Deadline: v.cfg.Deadline,
		GiveUpAfter: v.cfg.GiveUpAfter, MaxBody: maxBody,
	}
}

// Verify returns the message of d. If Google's keys cannot be fetched, the error is not a refusal.
func (v *Verifier) Verify(ctx context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if err := v.authenticate(ctx, d); err != nil {
		return nil, err
	}
	push, err := strict.Select(d.Body, "message", "subscription")
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "the body: %w", err)
	}
	subscription, err := push.String("subscription")
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed,
			"the body's %w: payload unwrapping must be off for the subscription", err)
	}
	if !slices.Contains(v.cfg.Subscriptions, subscription) {
		return nil, webhook.Refuse(webhook.WrongApp, "the subscription is %.256q: compare Config.Subscriptions",
			subscription)
	}
	m, err := read(push["message"])
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "the message: %w", err)
	}
	if ahead := m.Time.Sub(d.Time); ahead > dedup.MaxAhead {
		return nil, fmt.Errorf("pubsubhook: publishTime %v is %v ahead of this machine's clock: set the clock",
			m.Time, ahead)
	}
	m.Tenant, m.Topic = source+"/"+subscription, subscription
	return []webhook.Event{{Message: m}}, nil
}

// read reads the member "message" of a push.
func read(raw []byte) (m consumer.Message, err error) {
	fields, err := strict.Select(raw, "data", "attributes", "messageId", "message_id", "publishTime", "orderingKey")
	if err != nil {
		return m, err
	}
	if m.ID, err = strict.Text(fields["messageId"]); err != nil {
		return m, fmt.Errorf("messageId %w", err)
	}
	if err := strict.ID(m.ID); err != nil {
		return m, fmt.Errorf("messageId %w", err)
	}
	if other := fields["message_id"]; other != nil && string(other) != string(fields["messageId"]) {
		return m, errors.New("messageId and message_id differ")
	}
	published, err := fields.String("publishTime")
	if err != nil {
		return m, err
	}
	if m.Time, err = strict.RFC3339(published); err != nil {
		return m, fmt.Errorf("publishTime %w", err)
	}
	m.Payload = []byte{}
	if fields.Has("data") {
		data, err := fields.String("data")
		if err == nil {
			m.Payload, err = strict.Base64(base64.StdEncoding, data)
		}
		if err != nil {
			return m, fmt.Errorf("data: %w", err)
		}
	}
	if fields.Has("orderingKey") {
		if m.OrderingKey, err = fields.String("orderingKey"); err != nil {
			return m, err
		}
	}
	var attributes map[string]string
	if fields.Has("attributes") {
		if err := json.Unmarshal(fields["attributes"], &attributes); err != nil {
			return m, errors.New("attributes are not strings")
		}
	}
	content := appendText(nil, string(m.Payload))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers["pubsub-attribute-"+name] = attributes[name]
		content = appendText(appendText(content, name), attributes[name])
	}
	fingerprint := dedup.FingerprintOf(content)
	m.Fingerprint = &fingerprint
	return m, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
