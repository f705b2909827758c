package standardhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// Sender is a name for the sender, such as "clerk": lower-case letters, digits, "-", "_" and ".". It is part of
	// each event's key, because two senders may use the same ID. A new name makes all events new. Required.
	Sender string

	// Endpoint distinguishes several accounts at one sender if their event IDs could be the same. It is part of each
	// event's key.
	//
	// Defaults to none.
	Endpoint string

	// Secrets are the endpoint's signing secrets: whsec_ and 24 to 64 bytes in base64. Any of them may have made a
	// signature: configure the old and the new secret while the sender changes it. Required, unless there are
	// PublicKeys.
	Secrets []string

	// PublicKeys are the keys of a sender that signs with Ed25519: whpk_ and 32 bytes in base64. Any of them may belong
	// to a signature.
	//
	// Defaults to none: signatures of version v1a are ignored.
	PublicKeys []string

	// Tolerance is how far the signed time of the attempt may be from the time of receipt, in both directions. It is
	// one hour at most: there is no way to switch the check off.
	//
	// Defaults to 5 minutes.
	Tolerance time.Duration

	// TimeField is the name of the body's member with the time when the event was created, in the form of RFC 3339. The
	// specification calls it "timestamp". Set it if all events of the sender have this member: an event without it is
	// refused. The member must be the same in each delivery of an event.
	//
	// Defaults to none: the age of an event is unknown, so events must be stored and forwarded. See webhook.NewInbox.
	TimeField string

	// GiveUpAfter is an age of events. When an event is older, each attempt may be the sender's last. Set it a little
	// below the age when the last attempt is due. It needs a TimeField.
	//
	// Defaults to 12 hours with a TimeField. Svix makes its last attempt after 27 hours.
	GiveUpAfter time.Duration

	// Horizon is how long after an event the sender may deliver it again, including by hand. The window of the
	// Processor must be at least as long.
	//
	// Defaults to 90 days.
	Horizon time.Duration
}

const (
	minSecret, maxSecret = 24, 64 // bytes, by the specification

	defaultGiveUpAfter = 12 * time.Hour
	defaultHorizon     = 90 * 24 * time.Hour
	deadline           = 15 * time.Second // the shortest that the specification recommends to senders

	senderCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("standardhook: Config."+format, args...))
	}
	switch {
	case c.Sender == "":
		refuse("Sender is required: it is part of each event's key; give the sender a name, such as \"clerk\"")
	case len(c.Sender) > 64 || strings.Trim(c.Sender, senderCharacters) != "":
		refuse("Sender is %q: want up to 64 lower-case letters, digits, -, _ and .", c.Sender)
	}
	if err := strict.Sender(c.Sender); err != nil {
		refuse("Sender %w", err)
	}
	if c.Endpoint != "" {
		if err := strict.Token(c.Endpoint, ""); err != nil {
			refuse("Endpoint %w", err)
		} else if len(c.Endpoint) > 128 {
			refuse("Endpoint has %d bytes, more than 128", len(c.Endpoint))
		}
	}
	if len(c.Secrets)+len(c.PublicKeys) == 0 {
		refuse("Secrets is required, or PublicKeys: copy the endpoint's signing secret, which begins with %s",
			secretPrefix)
	}
	for i, secret := range c.Secrets {
		if _, err := decodeSecret(secret); err != nil {
			refuse("Secrets[%d] %w", i, err)
		}
	}
	for i, key := range c.PublicKeys {
		if _, err := decodePublicKey(key); err != nil {
			refuse("PublicKeys[%d] %w", i, err)
		}
	}
	var err error
	if c.Tolerance, err = strict.Tolerance(c.Tolerance); err != nil {
		refuse("Tolerance %w", err)
	}
	switch {
	case c.GiveUpAfter < 0:
		refuse("GiveUpAfter is %v: want more than 0", c.GiveUpAfter)
	case c.GiveUpAfter > 0 && c.TimeField == "":
		refuse("GiveUpAfter needs a TimeField: without it the age of an event is unknown; " +
			"set TimeField, or leave GiveUpAfter out and use webhook.NewInbox")
	case c.GiveUpAfter == 0 && c.TimeField != "":
		c.GiveUpAfter = defaultGiveUpAfter
	}
	switch {
	case c.Horizon < 0:
		refuse("Horizon is %v: want more than 0", c.Horizon)
	case c.Horizon == 0:
		c.Horizon = defaultHorizon
	}
	if c.Horizon > 0 && c.GiveUpAfter >= c.Horizon {
		refuse("Horizon is %v, and the sender's last attempt may come later than GiveUpAfter, which is %v: set a longer Horizon",
			c.Horizon, c.GiveUpAfter)
	}
	return c, errors.Join(wrong...)
}

const (
	secretPrefix     = "whsec_"
	publicKeyPrefix  = "whpk_"
	privateKeyPrefix = "whsk_"
)

// decodeSecret returns the key of an HMAC.
func decodeSecret(s string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(s, secretPrefix)
	switch {
	case strings.TrimSpace(s) == "":
		return nil, errors.New("is empty: copy the endpoint's signing secret, which begins with whsec_")
	case strings.HasPrefix(s, publicKeyPrefix):
		return nil, errors.New("is a public key: put it into PublicKeys")
	case strings.HasPrefix(s, privateKeyPrefix):
		return nil, errors.New("is a private key, which only the sender may have: want a secret, which begins with whsec_")
	case !ok:
		return nil, errors.New("does not begin with whsec_: copy the endpoint's signing secret, " +
			"or write whsec_ and the base64 of the secret's bytes")
	case encoded == "":
		return nil, errors.New("is whsec_ without a secret: anybody could make its signatures; copy the endpoint's whole signing secret")
	}
	key, err := decodeBase64(encoded)
	switch {
	case err != nil:
		return nil, errors.New("is not base64 after whsec_: copy the endpoint's signing secret without spaces and newlines")
	case len(key) < minSecret:
		return nil, fmt.Errorf("is shorter than %d bytes after decoding: "+
			"copy the endpoint's whole signing secret, which begins with whsec_", minSecret)
	case len(key) > maxSecret:
		return nil, fmt.Errorf("has %d bytes after decoding, more than %d: "+
			"copy the endpoint's signing secret, which begins with whsec_", len(key), maxSecret)
	}
	if err := strict.Key(key, minSecret); err != nil {
		return nil, fmt.Errorf("%w; copy the endpoint's signing secret", err)
	}
	return key, nil
}

func decodePublicKey(s string) (ed25519.PublicKey, error) {
	encoded, ok := strings.CutPrefix(s, publicKeyPrefix)
	switch {
	case strings.TrimSpace(s) == "":
		return nil, errors.New("is empty: copy the endpoint's public key, which begins with whpk_")
	case strings.HasPrefix(s, privateKeyPrefix):
		return nil, errors.New("is a private key, which only the sender may have: want the public key, which begins with whpk_")
	case strings.HasPrefix(s, secretPrefix):
		return nil, errors.New("is a secret: put it into Secrets")
	case !ok:
		return nil, errors.New("does not begin with whpk_: copy the endpoint's public key")
	}
	key, err := decodeBase64(encoded)
	switch {
	case err != nil:
		return nil, errors.New("is not base64 after whpk_: copy the endpoint's public key without spaces and newlines")
	case len(key) != ed25519.PublicKeySize:
		return nil, fmt.Errorf("has %d bytes after decoding, not %d: copy the endpoint's public key", len(key),
			ed25519.PublicKeySize)
	case strict.LowOrder(key):
		return nil, errors.New("is a point of low order: anybody could make its signatures; copy the endpoint's public key")
	}
	return key, nil
}

// decodeBase64 decodes standard base64, with padding or without.
func decodeBase64(s string) ([]byte, error) {
	if decoded, err := strict.Base64(base64.StdEncoding, s); err == nil {
		return decoded, nil
	}
	return strict.Base64(base64.RawStdEncoding, s)
}
