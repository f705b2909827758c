package httpidem_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/adapters/httpidem"
)

// The header's value as the client sends it, and what becomes of it.
func TestKeys(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, tt := range []struct {
		name            string
		values          []string
		lenient, strict httpidem.Reason // empty: accepted
	}{
		{"case 1: no key", nil, httpidem.MissingKey, httpidem.MissingKey},
		{"case 2: empty", []string{""}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: empty quotes", []string{`""`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: spaces only", []string{`   `}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: spaces only, in quotes", []string{`"   "`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: 255 bytes", []string{`"` + long + `"`}, "", ""},
		{"case 2: 256 bytes", []string{`"` + long + `k"`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: 256 bytes without quotes", []string{long + "k"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: a control character", []string{"a\x01b"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: a control character in quotes", []string{"\"a\x7fb\""}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: NUL", []string{"a\x00b"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: a line break", []string{"a\r\nb"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: not ASCII", []string{"schlüssel"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 2: not ASCII, in quotes", []string{`"schlüssel"`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 3: quotes", []string{`"abc"`}, "", ""},
		{"case 3: no quotes", []string{`abc`}, "", httpidem.MalformedKey},
		{"case 3: a space in quotes", []string{`"a b"`}, "", ""},
		{"case 3: a space without quotes", []string{`a b`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 3: parameters are ignored", []string{`"abc";a; b=1;c="x;\"y";*d=?1`}, "", ""},
		{"case 4: unterminated", []string{`"abc`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: bad escape", []string{`"a\x"`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: escape at the end", []string{`"a\`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: good escapes", []string{`"a\"b\\c"`}, "", ""},
		{"case 4: a list", []string{`"a", "b"`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: a list without quotes", []string{`a,b`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: text behind the string", []string{`"a"b`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: a parameter without a name", []string{`"a";=1`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: a parameter without a value", []string{`"a";b=`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: a parameter in capitals", []string{`"a";B`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 4: a list behind a parameter", []string{`"a";b=1, "c"`}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 5: two lines", []string{"a", "b"}, httpidem.MalformedKey, httpidem.MalformedKey},
		{"case 5: two equal lines", []string{"a", "a"}, httpidem.MalformedKey, httpidem.MalformedKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				a := newAPI(t, func(c *config) { c.StrictKey = strict })
				q := request{noKey: true, header: http.Header{}}
				if tt.values != nil {
					q.header["Idempotency-Key"] = tt.values
				}
				want := tt.lenient
				if strict {
					want = tt.strict
				}
				if want == "" {
					a.want(a.create(), q, http.StatusCreated, false)
					a.wantEffects(1)
					continue
				}
				a.refused(a.create(), q, http.StatusBadRequest, want)
				a.wantEffects(0)
			}
		})
	}
}

// Spellings of one key, and what is no key.
func TestKeySpellings(t *testing.T) {
	t.Run("case 3: with and without quotes it is one key", func(t *testing.T) {
		a := newAPI(t)
		first := a.want(a.create(), request{key: `"abc"`}, http.StatusCreated, false)
		a.same(first, a.want(a.create(), request{key: `abc`}, http.StatusCreated, true))
		a.want(a.create(), request{key: `"ab\\c"`}, http.StatusCreated, false)
		a.want(a.create(), request{key: `ab\c`}, http.StatusCreated, true)
		a.want(a.create(), request{key: `ABC`}, http.StatusCreated, false)
		a.wantEffects(3)
	})
	for name, change := range map[string]func(r *http.Request){
		"case 6: a key in a trailer":             func(r *http.Request) { r.Trailer = http.Header{"Idempotency-Key": {"k"}} },
		"case 6: a header with underscores":      func(r *http.Request) { r.Header["Idempotency_Key"] = []string{"k"} },
		"case 6: a header in another case":       func(r *http.Request) { r.Header["idempotency-key"] = []string{"k"} },
		"case 6: a key in the query":             func(r *http.Request) { r.URL.RawQuery = "Idempotency-Key=k" },
		"case 6: a header with another spelling": func(r *http.Request) { r.Header.Set("X-Idempotency-Key", "k") },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			r := request{noKey: true}.make(t.Context())
			change(r)
			w := serve(a.create(), r)
			wantProblem(t, w, http.StatusBadRequest, httpidem.MissingKey)
			if strings.Contains(w.Body.String(), "detail") {
				t.Errorf("the detail repeats the title: %s", w.Body)
			}
			a.wantEffects(0)
		})
	}
	t.Run("case 6: a real trailer", func(t *testing.T) {
		a := newAPI(t)
		server := httptest.NewServer(a.create())
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength, r.Trailer = -1, http.Header{"Idempotency-Key": {"k"}}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

// FuzzKey checks that no header makes the handler panic, and that an accepted key is replayed.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{`abc`, `"abc"`, `"a\"b";p=1;q`, `"`, `"a\`, "a,b", `"a";*`, "\x00", `"a" ; b`} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, value string, strict bool) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.StrictKey = strict })
			q := request{noKey: true, header: http.Header{"Idempotency-Key": {value}}}
			first := a.send(a.create(), q)
			if first.Code == http.StatusBadRequest {
				a.wantEffects(0)
				return
			}
			a.same(first, a.want(a.create(), q, http.StatusCreated, true))
			a.wantEffects(1)
		})
	})
}
