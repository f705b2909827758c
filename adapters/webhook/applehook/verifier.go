package applehook

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// maxAhead is how far a signed time may be ahead of this machine's clock.
const maxAhead = 5 * time.Minute

// Verifier checks App Store Server Notifications, version 2. It is a webhook.Verifier.
type Verifier struct {
	cfg        Config
	roots      *x509.CertPool
	chains     chains
	revocation *revocation // nil: no OCSP
	tenant     string
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	v := &Verifier{cfg: cfg, roots: x509.NewCertPool(), tenant: tenant(cfg.Environment, cfg.BundleID)}
	for _, root := range cfg.Roots {
		v.roots.AddCert(root)
	}
	if cfg.OCSP {
		v.revocation = newRevocation(cfg.HTTPClient)
	}
	return v, nil
}

// tenant is unambiguous: no environment has a slash.
func tenant(environment Environment, bundleID string) string {
	return "apple/" + string(environment) + "/" + bundleID
}

// Source implements webhook.Verifier.
func (v *Verifier) Source() webhook.Source {
	s := webhook.Source{Name: "apple", Deadline: v.cfg.Deadline, MaxBody: maxBody}
	if v.cfg.Environment == Sandbox {
		// The sandbox makes one attempt, so a failure parks at once. While nothing can be parked, only a Backfill finds
		// the notification again. 0 would mean an unknown age.
		s.Horizon, s.GiveUpAfter = historyOf(Sandbox)+24*time.Hour, time.Nanosecond
		return s
	}
	// Attempts are made 0, 1, 13, 37, 85 and 157 hours after the first. 120 hours are between the last two, with room
	// for delays.
	s.Horizon, s.GiveUpAfter = historyOf(Production)+24*time.Hour, 120*time.Hour
	return s
}

// historyOf is how long Apple keeps notifications.
func historyOf(environment Environment) time.Duration {
	if environment == Sandbox {
		return 30 * 24 * time.Hour
	}
	return 180 * 24 * time.Hour
}

// Verify implements webhook.Verifier. The body is {"signedPayload": "…"}. It returns one event, whose payload Decode
// reads.
func (v *Verifier) Verify(ctx context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if len(d.Body) > maxJWS {
		return nil, webhook.Refuse(webhook.Unsigned, "applehook: the body has %d bytes, more than %d",
			len(d.Body), maxJWS)
	}
	body, err := parseObject(d.Body)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned,
			"applehook: the body is not as Apple sends it (a proxy must not change it): %w", err)
	}
	signedPayload, err := body.text("signedPayload")
	if err == nil && signedPayload == "" {
		err = errors.New("signedPayload is missing or empty; only version 2 of App Store Server Notifications is supported")
	}
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "applehook: the body: %w", err)
	}
	event, err := v.verify(ctx, signedPayload, moment{now: d.Time, live: true})
	if err != nil {
		return nil, err
	}
	return []webhook.Event{event}, nil
}

// moment says when and how something is verified.
type moment struct {
	now  time.Time
	live bool // a delivery, not a backfill
}

// verify verifies a notification and all that is signed in it.
func (v *Verifier) verify(ctx context.Context, signedPayload string, m moment) (event webhook.Event, err error) {
	notification, err := v.open(ctx, "signedPayload", signedPayload, m)
	if err != nil {
		return event, err
	}
	if err := v.checkAge(notification.at, m); err != nil {
		return event, err
	}
	id, err := identityOf(notification.members)
	if err != nil {
		return event, err
	}
	if err := v.checkIdentity(id); err != nil {
		return event, err
	}
	all, err := v.openNested(ctx, notification, id, m)
	if err != nil {
		return event, err
	}
	return v.event(all)
}

// checkAge refuses a live delivery that is too old, or from the future. The certificates allow both: they are valid for
// years.
func (v *Verifier) checkAge(at time.Time, m moment) error {
	switch {
	case !m.live || at.IsZero():
		return nil
	case at.Sub(m.now) > maxAhead:
		return webhook.Refuse(webhook.BadTime, "applehook: signedDate is %v, more than %v ahead of this machine's clock", at.UTC(), maxAhead)
	case m.now.Sub(at) > v.cfg.MaxAge:
		return webhook.Refuse(webhook.BadTime, "applehook: signedDate is %v, longer ago than Config.MaxAge, %v",
			at.UTC(), v.cfg.MaxAge)
	}
	return nil
}

// opened is a JWS whose signature and certificates are verified.
type opened struct {
	raw     []byte // its payload
	members object
	at      time.Time // when it was signed; zero: it does not say
}

// open verifies a JWS. name names it in errors.
func (v *Verifier) open(ctx context.Context, name, compact string, m moment) (o opened, err error) {
	refuse := func(why webhook.Refusal, err error) (opened, error) {
		return opened{}, webhook.Refuse(why, "applehook: %s: %w", name, shortened(err))
	}
	j, err := parseJWS(compact)
	if err != nil {
		return refuse(webhook.Unsigned, err)
	}
	leaf, intermediate, err := j.certificates()
	if err != nil {
		return refuse(webhook.Unsigned, err)
	}
	if err := j.signedBy(leaf); err != nil {
		return refuse(webhook.BadSignature, err)
	}
	// What cannot be read is reported after the chain is verified, so that the reason says whether Apple signed it.
	o.raw = j.payload
	var unreadable, badTime error
	if o.members, unreadable = parseObject(j.payload); unreadable == nil {
		o.at, badTime = signedDate(o.members)
	}
	validAt := m.now
	if !o.at.IsZero() && !(v.revocation != nil && m.live) {
		validAt = o.at // Apple's certificates expire before its retries and its history end
	}
	chain, err := v.verifyChain(leaf, intermediate, validAt)
	if err != nil {
		return refuse(webhook.BadSignature, err)
	}
	if v.revocation != nil && m.live {
		switch err := v.revocation.check(ctx, chain, m.now); {
		case errors.Is(err, errRevoked):
			return refuse(webhook.BadSignature, err)
		case err != nil:
			return opened{}, fmt.Errorf("applehook: %s: ask whether its certificates are revoked: %w", name, err)
		}
	}
	if unreadable != nil {
		return refuse(webhook.Malformed, unreadable)
	}
	if badTime != nil {
		return refuse(webhook.BadTime, badTime)
	}
	return o, nil
}

// maxReason limits errors that contain text of a sender whose signature is not verified, such as names in its
// certificates.
const maxReason = 300

func shortened(err error) error {
	if text := err.Error(); len(text) > maxReason {
		return errors.New(strings.ToValidUTF8(text[:maxReason], "") + "…")
	}
	return err
}

// signedDate returns when a payload was signed, or the zero time if it does not say.
func signedDate(o object) (time.Time, error) {
	for _, name := range []string{"signedDate", "receiptCreationDate"} {
		if !o.has(name) {
			continue
		}
		ms, err := o.integer(name)
		if err != nil {
			return time.Time{}, err
		}
		if ms == 0 || ms > maxMillis {
			return time.Time{}, fmt.Errorf("%s is %d, which is no time", name, ms)
		}
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, nil
}

// maxMillis is the year 9000, the last one that all databases can keep.
const maxMillis = 221845392000000

// printable reports whether s has 1 to 255 characters of printable ASCII, without spaces. Apple's are UUIDs and names.
func printable(s string) bool { return strict.Token(s, "") == nil }
