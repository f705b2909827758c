package standardhook

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// Verifier verifies the deliveries of one endpoint. It is a webhook.Verifier, and safe for concurrent use.
type Verifier struct {
	cfg        Config
	tenant     string
	secrets    [][]byte
	publicKeys []ed25519.PublicKey
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	v := &Verifier{cfg: cfg, tenant: cfg.Sender}
	if cfg.Endpoint != "" {
		v.tenant += "/" + cfg.Endpoint
	}
	for _, s := range cfg.Secrets {
		secret, err := decodeSecret(s)
		if err != nil {
			return nil, err
		}
		v.secrets = append(v.secrets, secret)
	}
	for _, s := range cfg.PublicKeys {
		key, err := decodePublicKey(s)
		if err != nil {
			return nil, err
		}
		v.publicKeys = append(v.publicKeys, key)
	}
	return v, nil
}

// maxBody: the specification has no limit. It advises 20 kB, and senders allow several hundred.
const maxBody = 1 << 20

// Source describes the sender.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: v.cfg.Sender, Horizon: v.cfg.Horizon, Deadline: deadline,
		GiveUpAfter: v.cfg.GiveUpAfter, MaxBody: maxBody,
	}
}

// Verify returns the one event of d.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	headers, err := readHeaders(d.Header)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	if err := strict.Token(headers.id, "."); err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "the event's id %w", err)
	}
	attempt, err := strict.UnixSeconds(headers.timestamp)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "the time of the attempt: %w", err)
	}
	v1, v1a, err := parseSignatures(headers.signature)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	if !v.authentic(headers, d.Body, v1, v1a) {
		return nil, webhook.Refuse(webhook.BadSignature,
			"no configured key made a signature: compare Config.Secrets with the sender's, and make sure that no proxy changes the raw body")
	}
	if err := strict.Recent(attempt, d.Time, v.cfg.Tolerance); err != nil {
		return nil, webhook.Refuse(webhook.BadTime, "%w", err)
	}
	msg, err := v.message(headers.id, d.Body)
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	}
	return []webhook.Event{{Message: msg}}, nil
}

// authentic reports whether any configured key made any of the signatures.
func (v *Verifier) authentic(s signed, body []byte, v1, v1a []string) bool {
	head := []byte(s.id + "." + s.timestamp + ".")
	macs := make([]string, len(v.secrets))
	for i, secret := range v.secrets {
		macs[i] = base64.StdEncoding.EncodeToString(strict.MAC(sha256.New, secret, head, body))
	}
	authentic := strict.AnyEqual(macs, v1)
	if len(v.publicKeys) == 0 || len(v1a) == 0 {
		return authentic
	}
	content := append(head, body...)
	for _, encoded := range v1a {
		signature, err := strict.Base64(base64.StdEncoding, encoded)
		if err != nil || len(signature) != ed25519.SignatureSize {
			continue
		}
		for _, key := range v.publicKeys {
			authentic = ed25519.Verify(key, content, signature) || authentic
		}
	}
	return authentic
}

// message reads the signed body.
func (v *Verifier) message(id string, body []byte) (consumer.Message, error) {
	msg := consumer.Message{ID: id, Tenant: v.tenant, Payload: body, Fingerprint: &dedup.Fingerprint{}}
	object, err := strict.Parse(body)
	if err != nil && !(errors.Is(err, strict.ErrNotObject) && v.cfg.TimeField == "") {
		return msg, fmt.Errorf("the body: %w", err)
	}
	kind, err := object.Field("type")
	if err != nil && !errors.Is(err, strict.ErrMissing) && !errors.Is(err, strict.ErrOtherCase) {
		// not all senders have a "type"
		return msg, fmt.Errorf("the body's \"type\" %w", err)
	}
	if topic, err := strict.Text(kind); err == nil {
		msg.Topic = topic
		*msg.Fingerprint = dedup.FingerprintOf([]byte(topic))
	}
	if v.cfg.TimeField != "" {
		if msg.Time, err = created(object, v.cfg.TimeField); err != nil {
			return msg, fmt.Errorf("the body's %q, which is Config.TimeField, %w", v.cfg.TimeField, err)
		}
	}
	return msg, nil
}

func created(object strict.Object, field string) (time.Time, error) {
	value, err := object.Field(field)
	if err != nil {
		return time.Time{}, err
	}
	text, err := strict.Text(value)
	if err != nil {
		return time.Time{}, err
	}
	return strict.RFC3339(text)
}
