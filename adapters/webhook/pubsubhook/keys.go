package pubsubhook

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/fetch"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// keysURL has Google's keys as a JSON Web Key Set.
const keysURL = "https://www.googleapis.com/oauth2/v3/certs"

// These limits bound the work that a forged token causes.
const (
	maxKeys      = 32
	maxBytes     = 64 << 10
	fetchTimeout = 5 * time.Second
	failedFor    = 10 * time.Second

	keepFor      = time.Hour   // so that a key that Google withdraws is not accepted for long
	unknownEvery = time.Minute // how often an unknown key makes us look for new ones

	minKey, maxKey = 2048, 8192 // bits
)

type keySet map[string]*rsa.PublicKey

// keys fetches and keeps Google's keys.
type keys struct {
	client  *http.Client
	fetches fetch.Shared[struct{}, keySet]

	// Guarded by fetches.
	known keySet
	at    time.Time // when known was fetched
}

func newKeys(transport http.RoundTripper) *keys {
	return &keys{
		client: &http.Client{
			Transport:     transport,
			Timeout:       fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		fetches: fetch.Shared[struct{}, keySet]{FailedFor: failedFor},
	}
}

// key returns the key of that ID, or nil if Google has none. An error means that this is unknown.
func (k *keys) key(ctx context.Context, id string) (*rsa.PublicKey, error) {
	set, err := k.fetches.Get(ctx, struct{}{}, fetch.Request[keySet]{
		Known: func() (keySet, bool) {
			age := time.Since(k.at)
			return k.known, k.known != nil && age < keepFor && (k.known[id] != nil || age < unknownEvery)
		},
		Do:   k.fetch, // the client's timeout ends it
		Keep: func(set keySet) { k.known, k.at = set, time.Now() },
	})
	return set[id], err
}

func (k *keys) fetch(ctx context.Context) (keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, keysURL, nil)
	if err != nil {
		return nil, err
	}
	body, err := fetch.Body(k.client, req, maxBytes)
	if err != nil {
		return nil, err
	}
	return parseKeys(body)
}

// parseKeys reads a JSON Web Key Set. Keys that are not for RS256 are left out. A set without a usable key is an error.
func parseKeys(body []byte) (keySet, error) {
	members, err := strict.Unambiguous(body, 8)
	if err != nil {
		return nil, fmt.Errorf("the keys are %w", err)
	}
	items, err := strict.Items(members["keys"])
	if err != nil || len(items) > maxKeys {
		return nil, fmt.Errorf("the member \"keys\" is no array of at most %d keys", maxKeys)
	}
	set := keySet{}
	for i, item := range items {
		id, key, err := parseKey(item)
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %d: %w", i, err)
		case key == nil:
		case set[id] != nil:
			return nil, fmt.Errorf("key %d has the kid of another one", i)
		default:
			set[id] = key
		}
	}
	if len(set) == 0 {
		return nil, errors.New("no key is for RS256")
	}
	return set, nil
}

// parseKey returns nil for a key that is not for RS256.
func parseKey(item []byte) (id string, key *rsa.PublicKey, err error) {
	m, err := strict.Unambiguous(item, 4)
	if err != nil {
		return "", nil, err
	}
	if !has(m, "kty", "RSA") || m.Has("alg") && !has(m, "alg", "RS256") || m.Has("use") && !has(m, "use", "sig") {
		return "", nil, nil
	}
	if id, err = m.String("kid"); err != nil {
		return "", nil, err
	}
	var numbers [2]*big.Int
	for i, name := range []string{"n", "e"} {
		text, err := m.String(name)
		if err != nil {
			return "", nil, err
		}
		b, err := strict.Base64(base64.RawURLEncoding, text)
		if err != nil {
			return "", nil, fmt.Errorf("%q %w", name, err)
		}
		numbers[i] = new(big.Int).SetBytes(b)
	}
	n, e := numbers[0], numbers[1]
	if bits := n.BitLen(); bits < minKey || bits > maxKey {
		return "", nil, fmt.Errorf("it has %d bits: want %d to %d", bits, minKey, maxKey)
	}
	if !e.IsInt64() || e.Int64() < 65537 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
		return "", nil, errors.New("its exponent is too small, too large or even")
	}
	return id, &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func has(m strict.Members, name, value string) bool {
	s, err := m.String(name)
	return err == nil && s == value
}
