package pubsubhook_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/pubsubhook"
)

const (
	play     = "projects/my-project/subscriptions/play"
	audience = "https://hooks.example.com/play"
	account  = "push@my-project.iam.gserviceaccount.com"
)

// Go's tests in a bubble of synctest begin at this time.
var now = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func config() pubsubhook.Config {
	return pubsubhook.Config{
		Subscriptions: []string{play}, Audiences: []string{audience}, ServiceAccounts: []string{account},
	}
}

// network counts requests, and answers with respond.
type network struct {
	respond  func(*http.Request) (*http.Response, error)
	requests atomic.Int64
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.requests.Add(1)
	return n.respond(req)
}

func response(status int, body string) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}
}

// sharedSigner saves the time of making a key for each test.
var sharedSigner = sync.OnceValue(func() *pubsubhook.Signer {
	s, err := pubsubhook.NewSigner()
	if err != nil {
		panic(err)
	}
	return s
})

func newVerifier(t testing.TB, n *network) *pubsubhook.Verifier {
	t.Helper()
	if n.respond == nil {
		n.respond = sharedSigner().RoundTrip
	}
	cfg := config()
	cfg.Transport = n
	v, err := pubsubhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func push(t testing.TB) *webhook.Delivery {
	t.Helper()
	h, body, err := sharedSigner().Sign(pubsubhook.Push{
		Subscription: play, Audience: audience, ServiceAccount: account, MessageID: "136969346945",
		Data: []byte(`{"packageName":"com.example.app"}`), Attributes: map[string]string{"a": "b"}, OrderingKey: "k",
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	return &webhook.Delivery{Header: h, Body: body, Time: now}
}

// claims are right, but for those in edit; nil removes one.
func claims(edit map[string]any) map[string]any {
	c := map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "email": account, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "sub": "1", "azp": "1",
	}
	maps.Copy(c, edit)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func refused(t *testing.T, v *pubsubhook.Verifier, d *webhook.Delivery, want webhook.Refusal) {
	t.Helper()
	events, err := v.Verify(t.Context(), d)
	if got := webhook.RefusalOf(err); got != want || (err == nil) != (want == "") || err != nil && events != nil {
		t.Errorf("Verify = %v, %v; want a refusal %q", events, err, want)
	}
}

// jwt signs with key, by itself: the package's Signer could be wrong as the Verifier is.
func jwt(t testing.TB, key *rsa.PrivateKey, header string, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	hash := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// jwk is a key of a JSON Web Key Set.
func jwk(id string, key *rsa.PublicKey) map[string]any {
	enc := base64.RawURLEncoding
	return map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": id,
		"n": enc.EncodeToString(key.N.Bytes()), "e": enc.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}
}

func jwks(t testing.TB, keys ...map[string]any) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
