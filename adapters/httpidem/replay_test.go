package httpidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestReplay(t *testing.T) {
	t.Run("case 7: the same request is replayed byte for byte", func(t *testing.T) {
		a := newAPI(t)
		q := request{body: "\x00\xff{}"}
		first := a.want(a.create(), q, http.StatusCreated, false)
		for range 3 {
			a.same(first, a.want(a.create(), q, http.StatusCreated, true))
		}
		a.wantEffects(1)
	})
	t.Run("case 8: another body is a mismatch, and changes nothing", func(t *testing.T) {
		a := newAPI(t)
		first := a.want(a.create(), request{body: "10 EUR"}, http.StatusCreated, false)
		a.refused(a.create(), request{body: "99 EUR"}, http.StatusUnprocessableEntity, httpidem.Mismatch)
		a.refused(a.create(), request{body: "10 EUR", header: http.Header{"Content-Type": {"text/csv"}}},
			http.StatusUnprocessableEntity, httpidem.Mismatch)
		a.same(first, a.want(a.create(), request{body: "10 EUR"}, http.StatusCreated, true))
		a.wantEffects(1)
	})
	t.Run("case 9: white space in JSON counts by default, and not with CompactJSON", func(t *testing.T) {
		for _, tt := range []struct {
			first, second string
			fingerprint   func(*http.Request, []byte) ([]byte, error)
			replay        bool
		}{
			{`{"a":1}`, `{ "a": 1 }`, nil, false},
			{`{"a":1}`, `{ "a": 1 }`, httpidem.CompactJSON, true},
			{`{"a":"x y"}`, `{"a":"xy"}`, httpidem.CompactJSON, false},
			{`{"a":1,"A":2}`, `{"A":2,"a":1}`, httpidem.CompactJSON, false},
			{`{"a":1`, `{"a": 1`, httpidem.CompactJSON, false},
		} {
			a := newAPI(t, func(c *config) { c.Fingerprint = tt.fingerprint })
			a.want(a.create(), request{body: tt.first}, http.StatusCreated, false)
			if tt.replay {
				a.want(a.create(), request{body: tt.second}, http.StatusCreated, true)
			} else {
				a.refused(a.create(), request{body: tt.second}, http.StatusUnprocessableEntity, httpidem.Mismatch)
			}
		}
	})
	t.Run("case 46: another boundary of a multipart body is a mismatch, unless Fingerprint reads the fields", func(t *testing.T) {
		multipart := func(boundary string) request {
			return request{
				body: fmt.Sprintf("--%[1]s\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--%[1]s--\r\n",
					boundary),
				header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}},
			}
		}
		a := newAPI(t)
		a.want(a.create(), multipart("one"), http.StatusCreated, false)
		a.want(a.create(), multipart("one"), http.StatusCreated, true)
		a.refused(a.create(), multipart("two"), http.StatusUnprocessableEntity, httpidem.Mismatch)
		// The parameter alone does not count.
		a.want(a.create(), request{key: "json", body: "{}", header: http.Header{"Content-Type": {"application/json"}}},
			http.StatusCreated, false)
		a.want(a.create(), request{key: "json", body: "{}", header: http.Header{"Content-Type": {"Application/JSON; charset=utf-8"}}}, http.StatusCreated, true)

		fields := newAPI(t, func(c *config) {
			c.Fingerprint = func(r *http.Request, body []byte) ([]byte, error) {
				r = r.Clone(r.Context())
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				err := r.ParseMultipartForm(1 << 20)
				return []byte(r.MultipartForm.Value["a"][0]), err
			}
		})
		fields.want(fields.create(), multipart("one"), http.StatusCreated, false)
		fields.want(fields.create(), multipart("two"), http.StatusCreated, true)
		fields.wantEffects(1)
	})
	t.Run("a Fingerprint that fails runs nothing", func(t *testing.T) {
		a := newAPI(t, func(c *config) {
			c.Fingerprint = func(*http.Request, []byte) ([]byte, error) { return nil, errors.New("unreadable") }
		})
		a.refused(a.create(), request{}, http.StatusInternalServerError, httpidem.Failed)
		a.wantEffects(0)
	})
}

// Two requests are the same one only if everything in their scope is equal.
func TestScope(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b request
		same bool
	}{
		{"case 10: another route", request{target: "/orders"}, request{target: "/refunds"}, false},
		{"case 10: another method", request{method: http.MethodPost}, request{method: http.MethodPatch}, false},
		{"case 10: another resource", request{target: "/orders/1"}, request{target: "/orders/2"}, false},
		{
			"case 10: fields do not run into each other",
			request{target: "/a", key: "bc"},
			request{target: "/ab", key: "c"},
			false,
		},
		{"case 11: another tenant", request{user: "ann"}, request{user: "bob"}, false},
		{"E7: another user of the account", request{user: "shop/ann"}, request{user: "shop/bob"}, false},
		{"case 43: an encoded slash", request{target: "/a%2Fb"}, request{target: "/a/b"}, false},
		{"case 43: another case of the encoding", request{target: "/a%2Fb"}, request{target: "/a%2fb"}, false},
		{"case 43: a trailing slash", request{target: "/a"}, request{target: "/a/"}, false},
		{"case 43: a double slash", request{target: "/a//b"}, request{target: "/a/b"}, false},
		{"case 43: another order of the query", request{target: "/a?x=1&y=2"}, request{target: "/a?y=2&x=1"}, false},
		{"case 43: an absolute form", request{target: "/a?x=1"}, request{target: "http://example.com/a?x=1"}, true},
		{
			"case 43: an absolute form of another host",
			request{target: "https://one.example/a"},
			request{target: "http://two.example:8080/a"},
			true,
		},
		{"case 43: an absolute form without a path", request{target: "/"}, request{target: "http://example.com"}, true},
		{
			"case 43: an absolute form with a query only",
			request{target: "/?x"},
			request{target: "http://example.com?x"},
			true,
		},
		{"case 43: a scheme in the query", request{target: "/a?to=http://example.com/b"}, request{target: "/b"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t)
			a.want(a.create(), tt.a, http.StatusCreated, false)
			a.want(a.create(), tt.b, http.StatusCreated, tt.same)
			if tt.same {
				a.wantEffects(1)
				return
			}
			a.wantEffects(2)
			a.want(a.create(), tt.a, http.StatusCreated, true) // each has its own response
			a.want(a.create(), tt.b, http.StatusCreated, true)
		})
	}
	t.Run("case 43: HTTP/1.1 and HTTP/2 are one request", func(t *testing.T) {
		a := newAPI(t)
		server := httptest.NewUnstartedServer(a.create())
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		protocols := map[string]bool{}
		for _, http2 := range []bool{true, false, true} {
			client := server.Client()
			transport := client.Transport.(*http.Transport).Clone()
			transport.TLSClientConfig.NextProtos = nil // made from Protocols again
			transport.Protocols = new(http.Protocols)
			transport.Protocols.SetHTTP1(!http2)
			transport.Protocols.SetHTTP2(http2)
			client.Transport = transport
			defer transport.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/a%2Fb?x=1",
				strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			r.Header.Set("X-User", "ann")
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			protocols[res.Proto] = true
		}
		if len(protocols) != 2 {
			t.Errorf("protocols: %v", protocols)
		}
		a.wantEffects(1)
	})
	t.Run("E5: StripPrefix does not mix two shops", func(t *testing.T) {
		a := newAPI(t)
		mux := http.NewServeMux()
		for _, shop := range []string{"/shop-a", "/shop-b"} {
			mux.Handle(shop+"/", http.StripPrefix(shop, a.create()))
		}
		a.want(mux, request{target: "/shop-a/orders"}, http.StatusCreated, false)
		a.want(mux, request{target: "/shop-b/orders"}, http.StatusCreated, false)
		a.wantEffects(2)
	})
	t.Run("E5: another Name", func(t *testing.T) {
		store := deduptest.NewStore()
		for _, name := range []string{"one", "two"} {
			a := newAPIOn(t, store, func(c *config) { c.Name = name })
			a.want(a.create(), request{}, http.StatusCreated, false)
		}
	})
	t.Run("E5: a request without a RequestURI is refused, because URL may be changed", func(t *testing.T) {
		a := newAPI(t)
		r := request{}.make(t.Context())
		r.RequestURI = ""
		wantProblem(t, serve(a.create(), r), http.StatusInternalServerError, httpidem.Misused)
		a.wantEffects(0)
	})
}

// TestForeignReplayMark: a handler that passes on the response of another system, such as Stripe, must not mark its
// first response as a replay: Idempotent-Replayed says whether this Guard has run the handler.
func TestForeignReplayMark(t *testing.T) {
	a := newAPI(t)
	h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Idempotent-Replayed", "true") // copied from Stripe's response
		w.WriteHeader(http.StatusCreated)
		return tx.Add("effect")
	})
	a.want(h, request{}, http.StatusCreated, false)
	a.want(h, request{}, http.StatusCreated, true)
	a.wantEffects(1)
}
