package hmachook

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Verifier verifies deliveries of the sender that its Config describes. It is safe for concurrent use.
type Verifier struct{ plan plan }

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	return &Verifier{plan: p}, nil
}

// Source describes the sender.
func (v *Verifier) Source() webhook.Source {
	cfg := v.plan.cfg
	return webhook.Source{
		Name: cfg.Name, Horizon: cfg.Horizon, Deadline: cfg.Deadline, GiveUpAfter: cfg.GiveUpAfter,
		Reply: cfg.Reply,
	}
}

// Verify returns the event of d, or those of its batch. A batch without items is one dropped event. If {url} is signed
// and d has no URL, the error is no refusal.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	p := &v.plan
	if d.URL == "" && p.signed.has(partURL) {
		return nil, fmt.Errorf("hmachook: Delivery.URL is empty: set webhook.Config.PublicURL to the scheme and host of the URL "+
			"that %s was given, because it is signed", p.cfg.Name)
	}
	macs, timestamp, err := p.readHeaders(d.Header)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	// Before the signature: the form of a timestamp and of a header decides where it ends in the signed text.
	if err := p.signed.check(d.Header); err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "the %w", err)
	}
	var sent time.Time
	if p.signed.has(partTimestamp) {
		if sent, err = parseSigned(p.cfg.TimestampFormat, timestamp); err != nil {
			return nil, webhook.Refuse(webhook.Unsigned, "the timestamp %w", err)
		}
	}
	if !p.authentic(p.signed.text(d.Header, d.Body, timestamp, d.URL), macs) {
		return nil, webhook.Refuse(webhook.BadSignature,
			"no configured key made this signature: compare Config's keys and Config.Signed "+
				"with the sender's, and check that no proxy changes the raw body%s", p.urlHint(d))
	}
	if p.signed.container && !strict.IsContainer(d.Body) {
		return nil, webhook.Refuse(webhook.Malformed, "the body is not a JSON object or array")
	}
	if p.needsJSON() {
		if err := strict.Document(d.Body); err != nil {
			return nil, webhook.Refuse(webhook.Malformed, "the body is %w", err)
		}
	}
	if p.timestamp != nil {
		if sent, err = p.time(d.Body, p.timestamp, p.cfg.TimestampFormat); err != nil {
			return nil, webhook.Refuse(webhook.Malformed, "the timestamp: %w", err)
		}
	}
	if !sent.IsZero() {
		if err := strict.Recent(sent, d.Time, p.cfg.Tolerance); err != nil {
			return nil, webhook.Refuse(webhook.BadTime, "%w", err)
		}
	}
	event, ok, err := p.readHandshake(d.Body)
	switch {
	case err != nil:
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	case ok:
		return []webhook.Event{event}, nil
	}
	return p.events(d)
}

func (p *plan) urlHint(d *webhook.Delivery) string {
	if !p.signed.has(partURL) {
		return ""
	}
	return fmt.Sprintf(", and that the sender was given the URL %.256q", d.URL)
}

// needsJSON reports whether a path leads into the body.
func (p *plan) needsJSON() bool {
	return p.wholeBody || p.items != nil || p.timestamp != nil || p.topic != nil || p.scope != nil ||
		p.created != nil ||
		p.ids != nil || p.fingerprint != nil || p.handshake != nil
}
