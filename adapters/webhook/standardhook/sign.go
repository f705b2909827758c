package standardhook

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Sign returns the headers that a sender would add to body, for tests. key is a secret, whsec_…, or an Ed25519 private
// key: whsk_ and the base64 of its 64 bytes or of its 32-byte seed. at is the time of the attempt.
func Sign(key, id string, at time.Time, body []byte) (http.Header, error) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	content := append([]byte(id+"."+timestamp+"."), body...)
	var signature string
	if encoded, ok := strings.CutPrefix(key, privateKeyPrefix); ok {
		private, err := decodePrivateKey(encoded)
		if err != nil {
			return nil, err
		}
		signature = "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, content))
	} else {
		secret, err := decodeSecret(key)
		if err != nil {
			return nil, fmt.Errorf("standardhook: Sign: the key %w", err)
		}
		signature = "v1," + base64.StdEncoding.EncodeToString(strict.MAC(sha256.New, secret, content))
	}
	h := http.Header{}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", signature)
	return h, nil
}

func decodePrivateKey(encoded string) (ed25519.PrivateKey, error) {
	key, err := decodeBase64(encoded)
	switch {
	case err == nil && len(key) == ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(key), nil
	case err == nil && len(key) == ed25519.PrivateKeySize:
		return key, nil
	default:
		return nil, errors.New("standardhook: Sign: want whsk_ and the base64 of 32 or 64 bytes")
	}
}
