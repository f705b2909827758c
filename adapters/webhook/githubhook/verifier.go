package githubhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Horizon is how long the keys of events must be remembered. GitHub itself delivers again for three days at most, but
// it signs no time: a captured delivery is accepted for ever, and runs again after its keys were forgotten.
const Horizon = 400 * 24 * time.Hour

const (
	source = "github"

	// deadline is that of github.com. GitHub Enterprise Server may wait for 30 seconds.
	deadline = 10 * time.Second

	// maxBody: GitHub caps payloads at 25 MB, and does not deliver larger ones. It does not repeat a delivery that was
	// refused.
	maxBody = 25 << 20

	signatureHeader = "X-Hub-Signature-256"
	deliveryHeader  = "X-Github-Delivery"
	eventHeader     = "X-Github-Event"
	ping            = "ping"
)

// Verifier verifies the deliveries of one hook or app. It is a webhook.Verifier, and safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys [][]byte
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, keys: bodymac.Keys(cfg.Secrets)}, nil
}

// Source describes GitHub.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{Name: source, Horizon: Horizon, Deadline: deadline, MaxBody: maxBody}
}

// Verify returns the one event of d.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if err := v.authenticate(d); err != nil {
		return nil, err
	}
	id, err := bodymac.Token(d.Header, deliveryHeader, "=")
	if err != nil {
		return nil, err
	}
	topic, err := bodymac.Token(d.Header, eventHeader, "=")
	if err != nil {
		return nil, err
	}
	payload, isPing, err := decode(d.Body)
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "the body: %w", err)
	}
	var drop string
	switch {
	case isPing: // also if the header says otherwise, because it is not signed
		topic, drop = ping, "GitHub's ping to a new hook"
	case topic == ping:
		return nil, webhook.Refuse(webhook.WrongApp, "the header %s says ping, but the signed body is of another event",
			eventHeader)
	case !v.cfg.TrustTopicHeader && topic != v.cfg.Topic:
		return nil, webhook.Refuse(webhook.WrongApp,
			"the event is %q, and Config.Topic is %q: send each event to an endpoint of its own", topic, v.cfg.Topic)
	}
	msg := bodymac.Message(source, v.cfg.Endpoint, id, topic, payload, "")
	return []webhook.Event{{Message: msg, Drop: drop}}, nil
}

func (v *Verifier) authenticate(d *webhook.Delivery) error {
	signature, err := strict.Header(d.Header, signatureHeader)
	switch {
	case err != nil && len(d.Header.Values("X-Hub-Signature")) > 0:
		return webhook.Refuse(webhook.Unsigned, "%w; the signature with SHA-1 in X-Hub-Signature is not accepted", err)
	case err != nil:
		return webhook.Refuse(webhook.Unsigned, "%w; has the hook a secret?", err)
	}
	return bodymac.Authenticate(v.keys, signature, func(key []byte) string { return sign(key, d.Body) },
		"the hook's secret")
}

func sign(secret, body []byte) string {
	return "sha256=" + hex.EncodeToString(strict.MAC(sha256.New, secret, body))
}

// Sign returns the headers that GitHub would add to body, for tests. delivery is the event's ID, and event is its type.
// A Verifier refuses both unless they have 1 to 255 visible ASCII characters, without spaces and "=".
func Sign(secret, delivery, event string, body []byte) http.Header {
	h := http.Header{}
	h.Set(signatureHeader, sign([]byte(secret), body))
	h.Set(deliveryHeader, delivery)
	h.Set(eventHeader, event)
	return h
}
