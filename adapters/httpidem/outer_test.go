package httpidem_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Headers of outer layers and of inner ones.
func TestOuterLayers(t *testing.T) {
	t.Run("E10: a response that was rolled back leaves no headers behind", func(t *testing.T) {
		a := newAPI(t)
		h := a.guard.Handle(func(_ context.Context, _ *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Set("Location", "/orders/1")
			w.Header().Set("Content-Encoding", "br")
			w.WriteHeader(http.StatusCreated)
			return deduptest.ErrDown
		})
		w := a.refused(h, request{}, http.StatusServiceUnavailable, httpidem.Unavailable)
		if diff := cmp.Diff(http.Header{
			"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}, "Retry-After": {"1"},
			"Content-Length": w.Header()["Content-Length"],
		}, w.Header()); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
	t.Run("case 33: headers of outer layers are theirs, and fresh in each replay", func(t *testing.T) {
		a := newAPI(t)
		inner := a.writes(func(w http.ResponseWriter) {
			w.Header().Set("Vary", "Accept")
			w.Header().Set("Access-Control-Allow-Origin", "*")
		})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Origin")
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			inner.ServeHTTP(w, r)
		})
		for i, want := range []http.Header{
			{"Vary": {"Origin", "Accept"}, "X-Request-Id": {"0"}},
			{"Vary": {"Origin"}, "X-Request-Id": {"1"}},
		} {
			w := a.want(h, request{header: http.Header{"X-Request-Id": want["X-Request-Id"]}}, http.StatusOK, i > 0)
			got := http.Header{"Vary": w.Header()["Vary"], "X-Request-Id": w.Header()["X-Request-Id"]}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("response %d (-want +got):\n%s", i, diff)
			}
			if _, cors := w.Header()["Access-Control-Allow-Origin"]; cors != (i == 0) {
				t.Errorf("response %d: Access-Control-Allow-Origin: %v", i, cors)
			}
		}
	})
	t.Run("case 31: a gzip layer outside compresses what is stored plain", func(t *testing.T) {
		a := newAPI(t)
		inner := a.writes(func(w http.ResponseWriter) { io.WriteString(w, "plain") })
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "gzip" {
				inner.ServeHTTP(w, r)
				return
			}
			plain := serve(inner, r)
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped(plain.Body.String()))
		})
		if w := a.send(h, request{header: http.Header{"Accept-Encoding": {"gzip"}}}); w.Body.String() != string(zipped("plain")) {
			t.Errorf("body %q", w.Body)
		}
		if w := a.want(h, request{}, http.StatusOK, true); w.Body.String() != "plain" ||
			w.Header().Get("Content-Encoding") != "" {
			t.Errorf("body %q", w.Body)
		}
	})
	t.Run("case 31, E10: an encoding inside is stored with its bytes, and refused where it is not accepted", func(t *testing.T) {
		a := newAPI(t)
		h := a.writes(func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped("plain"))
		})
		accepting := func(values ...string) request { return request{header: http.Header{"Accept-Encoding": values}} }
		first := a.want(h, accepting("gzip"), http.StatusOK, false)
		if _, typed := first.Header()["Content-Type"]; typed {
			t.Error("the type of compressed bytes was guessed")
		}
		for _, values := range [][]string{
			{"gzip"},
			{"GZIP;q=0.5"},
			{"br, gzip"},
			{"br", "x-gzip"},
			{"*"},
			{"br;q=0, *;q=0.1"},
		} {
			a.same(first, a.want(h, accepting(values...), http.StatusOK, true))
		}
		a.refused(h, request{}, http.StatusNotAcceptable, httpidem.NotAcceptable)
		for _, value := range []string{"", "br", "identity", "gzip;q=0", "*;q=0", "gzip; q=0.000, *", "gzip;q=x"} {
			a.refused(h, accepting(value), http.StatusNotAcceptable, httpidem.NotAcceptable)
		}
		a.wantEffects(1)
	})
}

func zipped(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.Bytes()
}
