package pubsubhook

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// token is a JSON Web Token in compact form. Nothing in it is proven.
type token struct {
	signed    string // what the signature covers: the first two parts, as they were sent
	signature []byte
	key       string // the header's kid
	claims    strict.Members
}

// parseToken reads the value of the header Authorization. The algorithm must be RS256: the token's header does not
// choose it. Keys and URLs in the header are ignored.
func parseToken(authorization string) (t token, err error) {
	scheme, compact, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return t, errors.New("want a bearer token")
	}
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return t, fmt.Errorf("the token has %d parts, not 3", len(parts))
	}
	var decoded [3][]byte
	for i, part := range parts {
		if decoded[i], err = strict.Base64(base64.RawURLEncoding, part); err != nil {
			return t, fmt.Errorf("part %d of the token %w", i+1, err)
		}
	}
	header, err := strict.Unambiguous(decoded[0], 8)
	if err != nil {
		return t, fmt.Errorf("the token's header is %w", err)
	}
	if alg, err := header.String("alg"); err != nil || alg != "RS256" {
		return t, errors.New("the token's alg is not RS256")
	}
	for _, name := range []string{"crit", "b64"} { // they would change what the signature covers
		if header[name] != nil {
			return t, fmt.Errorf("the token's header has %s, which is not supported", name)
		}
	}
	if t.key, err = header.String("kid"); err != nil {
		return t, fmt.Errorf("the token's header: %w", err)
	}
	if t.claims, err = strict.Unambiguous(decoded[1], 8); err != nil {
		return t, fmt.Errorf("the token's claims are %w", err)
	}
	t.signed, t.signature = parts[0]+"."+parts[1], decoded[2]
	return t, nil
}

// check refuses a token whose claims are wrong, if they are Google's. It needs no network.
func (v *Verifier) check(t token, received time.Time) error {
	if issuer, err := t.claims.String("iss"); err != nil || issuer != "https://accounts.google.com" &&
		issuer != "accounts.google.com" {
		return webhook.Refuse(webhook.BadSignature, "the token's issuer is not Google")
	}
	// A list of audiences is refused: Google sends one.
	if audience, err := t.claims.String("aud"); err != nil || !slices.Contains(v.cfg.Audiences, audience) {
		return webhook.Refuse(webhook.WrongApp, "the token's audience is %.256q: compare Config.Audiences with the subscription", audience)
	}
	if email, err := t.claims.String("email"); err != nil || !slices.Contains(v.cfg.ServiceAccounts, email) {
		return webhook.Refuse(webhook.WrongApp, "the token's email is %.256q: compare Config.ServiceAccounts with the subscription", email)
	}
	if verified, err := t.claims.Bool("email_verified"); err != nil || !verified {
		return webhook.Refuse(webhook.WrongApp, "the token's email is not verified")
	}
	for _, claim := range []struct {
		name   string
		future bool // the time must not have come yet
		must   bool
	}{{"exp", true, true}, {"iat", false, true}, {"nbf", false, false}} {
		if !claim.must && t.claims[claim.name] == nil {
			continue
		}
		seconds, err := t.claims.Int(claim.name)
		if err != nil {
			return webhook.Refuse(webhook.BadTime, "the token's %w", err)
		}
		at := time.Unix(seconds, 0)
		if claim.future && received.Sub(at) > v.cfg.Tolerance || !claim.future && at.Sub(received) > v.cfg.Tolerance {
			return webhook.Refuse(webhook.BadTime, "the token's %s is %v, and it was received at %v: is a clock wrong?",
				claim.name,
				at.UTC().Format(time.RFC3339), received.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// authenticate returns an error unless Google made the token for a configured subscription. An error that is no refusal
// means that the keys are not known.
func (v *Verifier) authenticate(ctx context.Context, d *webhook.Delivery) error {
	authorization, err := strict.Header(d.Header, "Authorization")
	if err != nil {
		return webhook.Refuse(webhook.Unsigned, "the %w", err)
	}
	t, err := parseToken(authorization)
	if err != nil {
		return webhook.Refuse(webhook.Unsigned, "the header Authorization: %w", err)
	}
	if err := v.check(t, d.Time); err != nil { // before anything is fetched
		return err
	}
	key, err := v.keys.key(ctx, t.key)
	if err != nil {
		return fmt.Errorf("pubsubhook: Google's keys at %s: %w", keysURL, err)
	}
	hash := sha256.Sum256([]byte(t.signed))
	if key == nil || rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], t.signature) != nil {
		return webhook.Refuse(webhook.BadSignature, "no key of Google made the token")
	}
	return nil
}
