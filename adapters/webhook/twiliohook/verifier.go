package twiliohook

import (
	"context"
	"crypto/sha1" // Twilio's scheme; collisions of SHA-1 do not help to forge an HMAC
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// horizon: a captured request has a valid signature for ever, so its key must be remembered for long.
const horizon = 400 * 24 * time.Hour

// maxBody: Twilio documents no limit. Forms have a few KiB, and batches of JSON more.
const maxBody = 4 << 20

const bodySHA256 = "bodySHA256"

// Verifier verifies requests of Twilio. It is safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys [][]byte
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, keys: bodymac.Keys(cfg.AuthTokens)}, nil
}

// Source describes Twilio. Its events have no signed time, so GiveUpAfter is 0.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: "twilio", Horizon: horizon, Deadline: v.cfg.Deadline, MaxBody: maxBody,
		Reply: v.cfg.Reply,
	}
}

// Verify returns the event that the form of d is about, or the events that its JSON body has. A d without a URL is an
// error that is no refusal.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	if d.URL == "" {
		return nil, errors.New("twiliohook: Delivery.URL is empty: set webhook.Config.PublicURL to the scheme and host of the URL " +
			"that Twilio was given, because Twilio signs it")
	}
	value, err := strict.Header(d.Header, signatureHeader)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	signature, err := strict.Base64(base64.StdEncoding, value)
	if err != nil || len(signature) != sha1.Size {
		return nil, webhook.Refuse(webhook.Unsigned, "%s is not the base64 of an HMAC-SHA1", signatureHeader)
	}
	targets := variants(d.URL)
	if targets == nil {
		return nil, fmt.Errorf("twiliohook: Delivery.URL is %.256q: want webhook.Config.PublicURL to begin with https:// and a host", d.URL)
	}
	if v.cfg.IdentifyJSON != nil {
		return v.verifyJSON(d, targets, signature)
	}
	return v.verifyForm(d, targets, signature)
}

func (v *Verifier) verifyForm(d *webhook.Delivery, targets []string, signature []byte) ([]webhook.Event, error) {
	form, err := url.ParseQuery(string(d.Body))
	if err != nil {
		return nil, webhook.Refuse(webhook.BadSignature, "the body is not a form; "+
			"set Config.IdentifyJSON for an endpoint that Twilio sends JSON to")
	}
	form = canonical(form)
	text := formText(form)
	if !v.signed(targets, text, signature) {
		return nil, webhook.Refuse(webhook.BadSignature,
			"no auth token signed this form and %s: compare Config.AuthTokens with the console, "+
				"webhook.Config.PublicURL with the URL that Twilio was given, and check that no proxy changes the path or the body", targets[0])
	}
	if sids := v.cfg.AccountSids; len(sids) > 0 && (len(form["AccountSid"]) != 1 ||
		!slices.Contains(sids, form["AccountSid"][0])) {
		return nil, webhook.Refuse(webhook.WrongApp, "AccountSid %.80q is not among Config.AccountSids",
			form["AccountSid"])
	}
	identity, err := v.cfg.Identify(form)
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	}
	if err := strict.NotAlias(identity.ID); err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "the event's ID %w", err)
	}
	identity.Payload = []byte(form.Encode())
	event, err := newEvent(identity, d.URL)
	if err != nil {
		return nil, err
	}
	fingerprint := dedup.FingerprintOf([]byte(stable(form).Encode()))
	event.Message.Fingerprint = &fingerprint
	// Of the variant without a port, so that it is the same whichever variant was signed.
	event.Message.Aliases = []string{strict.BodyAlias("twilio", "", "", append([]byte(targets[0]), text...))}
	return []webhook.Event{event}, nil
}

func (v *Verifier) verifyJSON(d *webhook.Delivery, targets []string, signature []byte) ([]webhook.Event, error) {
	if !v.signed(targets, nil, signature) {
		return nil, webhook.Refuse(webhook.BadSignature,
			"no auth token signed %s: compare Config.AuthTokens with the console, "+
				"and webhook.Config.PublicURL with the URL that Twilio was given", targets[0])
	}
	_, rawQuery, _ := strings.Cut(targets[0], "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil || len(query[bodySHA256]) != 1 {
		return nil, webhook.Refuse(webhook.Unsigned, "the URL does not have %s once, so the body is not signed",
			bodySHA256)
	}
	sum := sha256.Sum256(d.Body)
	if query[bodySHA256][0] != hex.EncodeToString(sum[:]) {
		return nil, webhook.Refuse(webhook.BadSignature,
			"the body does not have the hash that was signed: check that no proxy changes it")
	}
	if err := strict.Document(d.Body); err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "the body is %w", err)
	}
	identities, err := v.cfg.IdentifyJSON(d.Body)
	if err == nil && len(identities) == 0 {
		err = errors.New("Config.IdentifyJSON found no event")
	}
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	}
	events := make([]webhook.Event, len(identities))
	for i, identity := range identities {
		if identity.Payload == nil {
			identity.Payload = d.Body
		}
		if events[i], err = newEvent(identity, d.URL); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// volatile are the parameters that may differ between two reports of one event: RawDlrDoneDate is when the carrier says
// that it was done, and a carrier may say that twice; ApiVersion is a setting of the account.
var volatile = []string{"RawDlrDoneDate", "ApiVersion"}

// stable returns form without its volatile parameters.
func stable(form url.Values) url.Values {
	form = maps.Clone(form)
	for _, name := range volatile {
		form.Del(name)
	}
	return form
}

// signed reports whether an auth token signed one of targets followed by text.
func (v *Verifier) signed(targets []string, text, signature []byte) bool {
	contents := make([][]byte, len(targets))
	for i, target := range targets {
		contents[i] = append([]byte(target), text...)
	}
	return strict.Signed(sha1.New, v.keys, contents, [][]byte{signature})
}

func newEvent(identity Identity, target string) (webhook.Event, error) {
	if err := strict.ID(identity.ID); err != nil {
		return webhook.Event{}, webhook.Refuse(webhook.Malformed, "the event's ID %w", err)
	}
	fingerprint := dedup.FingerprintOf(identity.Payload)
	return webhook.Event{Message: consumer.Message{
		ID: identity.ID, Tenant: "twilio", Topic: identity.Topic, Payload: identity.Payload, Time: identity.Time,
		Headers: map[string]string{"twilio-url": target}, Fingerprint: &fingerprint,
	}}, nil
}
