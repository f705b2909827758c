package stripehook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Verifier verifies Stripe's deliveries. It is safe for concurrent use.
type Verifier struct {
	cfg       Config // without its Secrets
	endpoints []endpoint
	keys      keys
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	v := &Verifier{cfg: cfg, keys: keys{account: cfg.Account, objectAlias: cfg.ObjectAlias}}
	for _, s := range cfg.Secrets {
		v.endpoints = append(v.endpoints, newEndpoint(s))
	}
	v.cfg.Secrets = nil
	return v, nil
}

// onlyConnect reports whether all events name their account.
func (v *Verifier) onlyConnect() bool {
	return !slices.ContainsFunc(v.endpoints, func(e endpoint) bool { return !e.connect })
}

// Source implements webhook.Verifier.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: sourceName, Horizon: horizon, Deadline: v.cfg.Deadline, GiveUpAfter: v.cfg.GiveUpAfter,
		MaxBody: maxBody,
	}
}

// Verify implements webhook.Verifier. It returns one event. Nothing of the body is read before its signature is
// verified.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	header, err := parseHeader(d.Header)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "stripehook: %w", err)
	}
	signers := v.signers(header, d.Body)
	if signers.none() {
		return nil, webhook.Refuse(webhook.BadSignature,
			"stripehook: no configured secret made the signature of the raw body; "+
				"is it another endpoint's secret, or does something in front of this server change the body?")
	}
	if err := v.checkTime(header.at, d.Time); err != nil {
		return nil, webhook.Refuse(webhook.BadTime, "stripehook: %w", err)
	}
	event, err := Parse(d.Body)
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	}
	drop, err := signers.admit(event)
	if err != nil {
		return nil, webhook.Refuse(webhook.WrongApp, "stripehook: %w", err)
	}
	return []webhook.Event{{Message: v.keys.message(event, d.Body, d.Time), Drop: drop}}, nil
}

func (v *Verifier) checkTime(signed, received time.Time) error {
	if v.cfg.InsecureAcceptAnyAge {
		return nil
	}
	if err := strict.Recent(signed, received, v.cfg.Tolerance); err != nil {
		return fmt.Errorf("%w, which is Config.Tolerance; is this machine's clock right?", err)
	}
	return nil
}

// admit checks that a secret of the event's mode signed it. A reason to drop is returned for events that Stripe sends
// although they are of the other mode.
func (s signers) admit(e Event) (drop string, err error) {
	switch {
	case e.Livemode && s.live, !e.Livemode && s.test:
		return "", nil
	case e.Livemode:
		return "", fmt.Errorf("event %s is a live event, but was signed with the secret of a test endpoint", e.ID)
	case s.liveConnect:
		return "a test event of a connected account, from a live endpoint", nil
	default:
		return "", fmt.Errorf("event %s is a test event, but was signed with the secret of a live endpoint; "+
			"for a Connect endpoint set Secret.Connect", e.ID)
	}
}
