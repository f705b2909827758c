package pubsubhook_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
)

// later wants an error that makes Pub/Sub repeat the delivery.
func later(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || webhook.RefusalOf(err) != "" {
		t.Errorf("%s: %v, want an error that is no refusal", what, err)
	}
}

func TestKeysCannotBeFetched(t *testing.T) {
	key, small := newKey(t, 2048), newKey(t, 1024)
	good := jwk("k1", &key.PublicKey)
	with := func(name string, value any) map[string]any {
		k := jwk("k1", &key.PublicKey)
		k[name] = value
		return k
	}
	token := jwt(t, key, `{"alg":"RS256","kid":"k1"}`, claims(nil))
	for _, test := range []struct {
		name string
		r    *http.Response
	}{
		{"status 500", response(500, jwks(t, good))},
		{"no JSON", response(200, "<html>")},
		{"no keys", response(200, `{}`)},
		{"an empty list", response(200, `{"keys":[]}`)},
		{"null", response(200, `{"keys":null}`)},
		{"two keys with one kid", response(200, jwks(t, good, good))},
		{"a small key", response(200, jwks(t, jwk("k1", &small.PublicKey)))},
		{"an exponent of 3", response(200, jwks(t, with("e", "Aw")))},
		{"an encryption key", response(200, jwks(t, with("use", "enc")))},
		{"another algorithm", response(200, jwks(t, with("alg", "RS512")))},
		{"a symmetric key", response(200, jwks(t, with("kty", "oct")))},
		{"no base64", response(200, jwks(t, with("n", "!")))},
		{"too large", response(200, jwks(t, good)+strings.Repeat(" ", 64<<10))},
	} {
		t.Run("case 59: "+test.name, func(t *testing.T) {
			v := newVerifier(t, &network{respond: func(*http.Request) (*http.Response, error) { return test.r, nil }})
			d := push(t)
			d.Header.Set("Authorization", token)
			_, err := v.Verify(t.Context(), d)
			later(t, test.name, err)
		})
	}
	t.Run("case 59: a redirect", func(t *testing.T) {
		n := &network{respond: func(req *http.Request) (*http.Response, error) {
			if req.URL.Host != "www.googleapis.com" {
				return response(200, jwks(t, good)), nil
			}
			return &http.Response{
				StatusCode: 302, Header: http.Header{"Location": {"https://evil.example/certs"}},
				Body: http.NoBody,
			}, nil
		}}
		d := push(t)
		d.Header.Set("Authorization", token)
		_, err := newVerifier(t, n).Verify(t.Context(), d)
		later(t, "a redirect", err)
		if got := n.requests.Load(); got != 1 {
			t.Errorf("%d requests, want 1", got)
		}
	})
	t.Run("other kinds of keys are left out", func(t *testing.T) {
		v := newVerifier(t, &network{respond: func(*http.Request) (*http.Response, error) {
			return response(200, jwks(t, map[string]any{"kty": "EC", "kid": "k0"}, good)), nil
		}})
		d := push(t)
		d.Header.Set("Authorization", token)
		refused(t, v, d, "")
	})
}

// The keys are kept for an hour, an unknown key is looked for once a minute, and a failure is repeated after 10
// seconds.
func TestKeysAreKept(t *testing.T) {
	sharedSigner()
	old, renewed := newKey(t, 2048), newKey(t, 2048)
	synctest.Test(t, func(t *testing.T) {
		served, failing := jwks(t, jwk("old", &old.PublicKey)), false
		n := &network{respond: func(*http.Request) (*http.Response, error) {
			if failing {
				return nil, errors.New("the network is down")
			}
			return response(200, served), nil
		}}
		v := newVerifier(t, n)
		verify := func(token string) error {
			d := push(t)
			d.Header.Set("Authorization", token)
			_, err := v.Verify(t.Context(), d)
			return err
		}
		byOld := jwt(t, old, `{"alg":"RS256","kid":"old"}`, claims(nil))
		byNew := jwt(t, renewed, `{"alg":"RS256","kid":"new"}`, claims(nil))
		step := func(what string, err error, want webhook.Refusal, requests int64) {
			t.Helper()
			if webhook.RefusalOf(err) != want || want == "" && err != nil {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
			if got := n.requests.Load(); got != requests {
				t.Errorf("%s: %d requests, want %d", what, got, requests)
			}
		}
		step("the first token", verify(byOld), "", 1)
		for range 100 {
			step("an unknown key within a minute", verify(byNew), webhook.BadSignature, 1)
		}
		served = jwks(t, jwk("old", &old.PublicKey), jwk("new", &renewed.PublicKey))
		<-time.After(time.Minute)
		step("case 53: the new key", verify(byNew), "", 2)
		step("case 53: the old key", verify(byOld), "", 2)
		<-time.After(59 * time.Minute)
		step("kept", verify(byOld), "", 2)
		served = jwks(t, jwk("new", &renewed.PublicKey))
		<-time.After(time.Minute)
		step("case 53: the old key was withdrawn", verify(byOld), webhook.BadSignature, 3)

		<-time.After(time.Hour)
		failing = true
		for range 100 {
			later(t, "old keys and no network", verify(byNew))
		}
		if got := n.requests.Load(); got != 4 {
			t.Errorf("%d requests, want 4: one fails, and is not repeated at once", got)
		}
		failing = false
		<-time.After(10 * time.Second)
		step("the network is back", verify(byNew), "", 5)
	})
}

func TestKeysAreFetchedOnce(t *testing.T) {
	sharedSigner()
	synctest.Test(t, func(t *testing.T) {
		n := &network{respond: func(req *http.Request) (*http.Response, error) {
			<-time.After(time.Second)
			return sharedSigner().RoundTrip(req)
		}}
		v := newVerifier(t, n)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { refused(t, v, push(t), "") })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := v.Verify(ctx, push(t))
		later(t, "the deadline of one delivery", err)
		all.Wait()
		if got := n.requests.Load(); got != 1 {
			t.Errorf("%d requests, want 1", got)
		}
	})
}
