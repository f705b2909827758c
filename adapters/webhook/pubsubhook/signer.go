package pubsubhook

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"time"
)

// Signer makes deliveries for tests, with a key of its own. It is also the http.RoundTripper that serves this key, so
// that a Verifier with Config.Transport = signer accepts what signer signed, and no test needs a network. It is safe
// for concurrent use.
type Signer struct {
	key *rsa.PrivateKey
	id  string
}

// NewSigner returns a Signer with a new key.
func NewSigner() (*Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, minKey)
	if err != nil {
		return nil, fmt.Errorf("pubsubhook: NewSigner: %w", err)
	}
	sum := sha256.Sum256(key.N.Bytes())
	return &Signer{key: key, id: hex.EncodeToString(sum[:20])}, nil
}

// Push is a message for a Signer.
type Push struct {
	Subscription   string
	Audience       string
	ServiceAccount string

	Data        []byte
	Attributes  map[string]string
	OrderingKey string
	MessageID   string    // empty: "1"
	PublishTime time.Time // zero: now
}

// Sign returns the header and body of the delivery of p at now.
func (s *Signer) Sign(p Push, now time.Time) (http.Header, []byte, error) {
	id := cmp.Or(p.MessageID, "1")
	if p.PublishTime.IsZero() {
		p.PublishTime = now
	}
	published := p.PublishTime.UTC().Format(time.RFC3339Nano)
	message := map[string]any{
		"data": p.Data, "messageId": id, "message_id": id, "publishTime": published,
		"publish_time": published,
	}
	if p.Attributes != nil {
		message["attributes"] = p.Attributes
	}
	if p.OrderingKey != "" {
		message["orderingKey"] = p.OrderingKey
	}
	body, err := json.Marshal(map[string]any{"message": message, "subscription": p.Subscription})
	if err != nil {
		return nil, nil, fmt.Errorf("pubsubhook: Sign: %w", err)
	}
	token, err := s.Token(map[string]any{
		"iss": "https://accounts.google.com", "aud": p.Audience, "email": p.ServiceAccount, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	return http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}, body, err
}

// Token returns a token with these claims.
func (s *Signer) Token(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("pubsubhook: Token: %w", err)
	}
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"RS256","kid":"`+s.id+`","typ":"JWT"}`)) + "." +
		enc.EncodeToString(payload)
	hash := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, hash[:])
	if err != nil {
		return "", fmt.Errorf("pubsubhook: Token: %w", err)
	}
	return signed + "." + enc.EncodeToString(signature), nil
}

// RoundTrip serves the key, as Google serves its keys.
func (s *Signer) RoundTrip(*http.Request) (*http.Response, error) {
	enc := base64.RawURLEncoding
	body, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": s.id,
		"n": enc.EncodeToString(s.key.N.Bytes()), "e": enc.EncodeToString(big.NewInt(int64(s.key.E)).Bytes()),
	}}})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}
