package snshook

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// maxBody is the size of the largest delivery: a message has at most 256 KiB, and JSON makes of a byte at most six.
const maxBody = 2 << 20

// Verifier verifies messages of SNS. It is safe for concurrent use.
type Verifier struct {
	cfg          Config
	certificates *certificates
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, certificates: newCertificates(cfg.Transport)}, nil
}

// Source describes SNS.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: "sns", Horizon: v.cfg.Horizon, Deadline: v.cfg.Deadline, GiveUpAfter: v.cfg.GiveUpAfter,
		MaxBody: maxBody,
	}
}

// Verify returns the message of d. Confirmations of subscriptions are dropped events. If the certificate cannot be
// fetched, the error is not a refusal: SNS does not repeat what was answered with 4xx.
func (v *Verifier) Verify(ctx context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	m, err := v.verified(ctx, d.Body, d.Time)
	if err != nil {
		return nil, err
	}
	arn := m.fields["TopicArn"]
	event := webhook.Event{Message: consumer.Message{
		ID:      m.fields["MessageId"],
		Tenant:  "sns/" + arn,
		Topic:   arn,
		Payload: []byte(m.fields["Message"]),
		Headers: map[string]string{"sns-timestamp": m.fields["Timestamp"]},
		Time:    m.timestamp,
	}}
	subject, hasSubject := m.fields["Subject"]
	if hasSubject {
		event.Message.Headers["sns-subject"] = subject
	}
	content := binary.AppendUvarint(nil, uint64(len(subject)))
	fingerprint := dedup.FingerprintOf(append(append(content, subject...), event.Message.Payload...))
	event.Message.Fingerprint = &fingerprint

	switch m.kind {
	case subscriptionConfirmation:
		v.cfg.Subscription(bytes.Clone(d.Body))
		event.Drop = "subscription confirmation: pass its body to Verifier.Confirm to accept the subscription"
	case unsubscribeConfirmation:
		event.Drop = "unsubscribe confirmation: the topic sends no more messages to this endpoint"
	}
	return []webhook.Event{event}, nil
}

// verified returns the message that body is. Its signature is right.
func (v *Verifier) verified(ctx context.Context, body []byte, received time.Time) (message, error) {
	m, err := v.readMessage(body)
	if err != nil {
		return m, err
	}
	key, err := v.certificates.key(ctx, m.certificate, received)
	if err != nil {
		return m, fmt.Errorf("snshook: certificate %s: %w", m.certificate, err)
	}
	digest := m.hash.New()
	digest.Write(signedText(m.kind, m.fields))
	if err := rsa.VerifyPKCS1v15(key, m.hash, digest.Sum(nil), m.signature); err != nil {
		return m, webhook.Refuse(webhook.BadSignature,
			"the key of %s did not sign this message: check that no proxy changes the body",
			m.certificate)
	}
	if ahead := m.timestamp.Sub(received); ahead > dedup.MaxAhead {
		// Not a refusal: SNS signed this time, so it is this machine's clock that is wrong, and SNS does not repeat
		// what was answered with 4xx.
		return m, fmt.Errorf("snshook: Timestamp %s is %v ahead of this machine's clock: set the clock",
			m.fields["Timestamp"], ahead)
	}
	return m, nil
}
