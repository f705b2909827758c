// Package bodymac has what the verifiers of GitHub and Shopify share. These senders sign only the raw body, with a
// secret. They do not sign the event's ID, its topic or a time.
package bodymac

import (
	"net/http"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// Keys returns the secrets of a Config as keys.
func Keys(secrets []string) (keys [][]byte) {
	for _, secret := range secrets {
		keys = append(keys, []byte(secret))
	}
	return keys
}

// Authenticate refuses a delivery unless sign makes signature with one of keys. theirs is what to compare
// Config.Secrets with.
func Authenticate(keys [][]byte, signature string, sign func(key []byte) string, theirs string) error {
	want := make([]string, len(keys))
	for i, key := range keys {
		want[i] = sign(key)
	}
	if !strict.AnyEqual(want, []string{signature}) {
		return webhook.Refuse(webhook.BadSignature,
			"no configured secret made the signature: compare Config.Secrets with %s, and make sure that no proxy changes the raw body", theirs)
	}
	return nil
}

// Token reads a header that is not signed, and refuses a delivery if it is not a strict.Token.
func Token(h http.Header, name, without string) (string, error) {
	value, err := strict.Header(h, name)
	if err != nil {
		return "", webhook.Refuse(webhook.Malformed, "%w", err)
	}
	if err := strict.Token(value, without); err != nil {
		return "", webhook.Refuse(webhook.Malformed, "header %s %w", name, err)
	}
	return value, nil
}

// Message returns the message of an event whose ID and topic are not signed. unsigned is another part of the message
// that handlers see and that is not signed.
func Message(source, endpoint, id, topic string, payload []byte, unsigned string) consumer.Message {
	alias := strict.BodyAlias(source, endpoint, topic, payload)
	// The fingerprint covers all that the alias does, and unsigned. Without it, somebody who sends a captured body with
	// the ID of another delivery first would make that delivery a duplicate, and it would be lost.
	fingerprint := dedup.FingerprintOf([]byte(alias + unsigned))
	return consumer.Message{
		ID:          id,
		Tenant:      source + "/" + endpoint,
		Topic:       topic,
		Payload:     payload,
		Fingerprint: &fingerprint,
		Aliases:     []string{alias},
	}
}
