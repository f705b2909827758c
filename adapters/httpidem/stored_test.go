package httpidem_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// FuzzStored reads any bytes as a stored response, which never panics, and reads back what was stored.
func FuzzStored(f *testing.F) {
	good, err := httpidem.Stored(secret("a"), []byte("x"), 201, http.Header{"Location": {"/1", ""}, "Etag": {"e"}},
		[]byte("body"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:36])
	f.Add(append(bytes.Clone(good[:36]), 0xff, 0xff, 0xff, 0xff, 0x7f))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stored []byte) {
		_, status, header, body, err := httpidem.Read(secret("a"), []byte("x"), stored)
		if err != nil {
			return
		}
		again, err := httpidem.Stored(secret("a"), []byte("x"), status, header, body)
		if err != nil {
			t.Fatal(err)
		}
		same, status2, header2, body2, err := httpidem.Read(secret("a"), []byte("x"), again)
		if err != nil || !same || status2 != status || !bytes.Equal(body2, body) {
			t.Fatalf("%d %q, then %d %q (%v)", status, body, status2, body2, err)
		}
		if diff := cmp.Diff(header, header2); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Each bit of a stored result that is not the response itself decides about the answer.
func TestStoredIsChecked(t *testing.T) {
	stored, err := httpidem.Stored(secret("a"), []byte("x"), 201, nil, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 36 {
		other := bytes.Clone(stored)
		other[i] ^= 0x80
		if same, _, _, _, err := httpidem.Read(secret("a"), []byte("x"), other); same && err == nil {
			t.Errorf("byte %d is not checked", i)
		}
		if _, _, _, _, err := httpidem.Read(secret("a"), []byte("x"), stored[:i]); err == nil {
			t.Errorf("%d bytes were read as a response", i)
		}
	}
	for name, read := range map[string][2][]byte{
		"content": {secret("a"), []byte("y")},
		"secret":  {secret("b"), []byte("x")},
	} {
		if same, _, _, _, err := httpidem.Read(read[0], read[1], stored); same || err != nil {
			t.Errorf("another %s: %v, %v", name, same, err)
		}
	}
}

// A duplicate whose response cannot be read never runs.
func TestNotRetained(t *testing.T) {
	for name, result := range map[string][]byte{
		"nothing": nil, "empty": {}, "a newer schema": append([]byte{2, 1}, make([]byte, 40)...),
		"another fingerprint": append([]byte{1, 2}, make([]byte, 40)...),
	} {
		t.Run("case 26: "+name, func(t *testing.T) {
			var key dedup.Key
			spy := &spyStore{Store: deduptest.NewStore(), before: func(_ int, recs []dedup.Record) { key = recs[0].Key }}
			a := newAPIOn(t, spy.Store, func(c *config) { c.Store = spy })
			a.want(a.status(http.StatusServiceUnavailable), request{}, 503, false) // only to learn the key
			err := a.store.InTx(t.Context(), []dedup.Record{{Key: key}}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
				if result == nil {
					return nil
				}
				return a.store.SaveResult(t.Context(), tx, key, result)
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				a.refused(a.create(), request{}, http.StatusConflict, httpidem.NotRetained)
			}
			a.wantEffects(0)
		})
	}
}

func TestSeal(t *testing.T) {
	block, err := aes.NewCipher(secret("aes"))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	seal := func(c *config) {
		c.Seal = func(plain, identity []byte) ([]byte, error) { return gcm.Seal(nil, nil, plain, identity), nil }
		c.Open = func(sealed, identity []byte) ([]byte, error) { return gcm.Open(nil, nil, sealed, identity) }
		c.Secrets = [][]byte{secret("a"), secret("b")}
	}
	token := func(a *api) http.Handler {
		return a.writes(func(w http.ResponseWriter) {
			w.Header().Set("Location", "/one-time-location")
			io.WriteString(w, "one-time-"+rand.Text())
		})
	}
	t.Run("case 42: a response with a secret is stored encrypted", func(t *testing.T) {
		keys := map[string][]byte{}
		spy := &spyStore{Store: deduptest.NewStore(), before: func(_ int, recs []dedup.Record) {
			for _, r := range recs {
				keys[r.Key.ID] = nil
			}
		}}
		a := newAPIOn(t, spy.Store, seal, func(c *config) { c.Store = spy })
		first := a.want(token(a), request{}, http.StatusOK, false)
		a.same(first, a.want(token(a), request{}, http.StatusOK, true))
		for id := range keys {
			claim, found, err := a.store.Lookup(t.Context(), dedup.Key{Consumer: "api", ID: id})
			if err != nil || !found || len(claim.Result) == 0 || bytes.Contains(claim.Result, []byte("one-time-")) {
				t.Errorf("found %v, %v: %q", found, err, claim.Result)
			}
			for other := range keys {
				if string(keys[other]) == string(claim.Result) {
					t.Error("two rows have the same result")
				}
			}
			keys[id] = claim.Result
		}
		if len(keys) != 2 {
			t.Fatalf("%d rows", len(keys))
		}
		plain := newAPIOn(t, a.store, func(c *config) { c.Secrets = [][]byte{secret("a")} })
		// a Guard that cannot decrypt never runs it
		plain.refused(plain.create(), request{}, http.StatusConflict, httpidem.NotRetained)
		a.wantEffects(1)
	})
	t.Run("case 42: what was stored before Seal was set is still replayed", func(t *testing.T) {
		a := newAPI(t)
		a.want(a.create(), request{}, http.StatusCreated, false)
		b := newAPIOn(t, a.store, seal)
		b.want(b.create(), request{}, http.StatusCreated, true)
	})
	t.Run("case 42: Seal fails", func(t *testing.T) {
		a := newAPI(t, seal, func(c *config) {
			c.Seal = func([]byte, []byte) ([]byte, error) { return nil, errors.New("no key") }
		})
		a.refused(a.create(), request{}, http.StatusInternalServerError, httpidem.Failed)
		a.wantEffects(0)
	})
}

func TestDownstreamKey(t *testing.T) {
	keys := func(a *api, q request, labels ...string) (got []string) {
		a.t.Helper()
		h := a.guard.Handle(func(ctx context.Context, _ *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
			for _, label := range labels {
				key, err := httpidem.DownstreamKey(ctx, label)
				if err != nil {
					key = err.Error()
				}
				got = append(got, key)
			}
			return errHandler // so that the next request runs again
		})
		a.send(h, q)
		return got
	}
	a := newAPI(t)
	first := keys(a, request{}, "charge", "mail", "charge", "")
	if len(first) != 4 || first[0] == first[1] || len(first[0]) != 36 {
		t.Fatalf("%q", first)
	}
	if !strings.Contains(first[2], `called before with the label "charge"`) ||
		!strings.Contains(first[3], "needs a label") {
		t.Errorf("E9: a label twice: %q; none: %q", first[2], first[3])
	}
	rotated := newAPI(t, func(c *config) { c.Secrets = [][]byte{secret("new")} })
	for name, again := range map[string][]string{
		"another attempt": keys(a, request{}, "mail", "charge"), "another secret": keys(rotated, request{}, "mail",
			"charge"),
		"another body": keys(a, request{body: "y"}, "mail", "charge"), "the key in quotes": keys(a, request{key: `"k"`},
			"mail", "charge"),
	} {
		if again[1] != first[0] || again[0] != first[1] {
			t.Errorf("E9: %s: %q, want those of the first attempt: %q", name, again, first[:2])
		}
	}
	named := newAPI(t, func(c *config) { c.Name = "other" })
	for name, other := range map[string][]string{
		"another key": keys(a, request{key: "k2"}, "charge"), "another principal": keys(a, request{user: "bob"},
			"charge"),
		"another route": keys(a, request{target: "/refunds"}, "charge"), "another name": keys(named, request{},
			"charge"),
	} {
		if other[0] == first[0] {
			t.Errorf("E9: %s: the same key", name)
		}
	}
	if _, err := httpidem.DownstreamKey(t.Context(), "charge"); err == nil {
		t.Error("a key outside of a handler")
	}
	optional := newAPI(t, func(c *config) { c.Optional = true })
	if got := keys(optional, request{noKey: true}, "charge"); got[0] != httpidem.ErrNoKey.Error() {
		t.Errorf("without a key: %q", got)
	}
}
