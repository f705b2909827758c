package httpidem_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// gunzip is middleware that decompresses a body, and leaves ContentLength alone.
func gunzip(next http.Handler, replace func(r *http.Request, plain io.ReadCloser)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			panic(err)
		}
		replace(r, plain)
		next.ServeHTTP(w, r)
	})
}

// A body that middleware has replaced has another length than the client said.
func TestReplacedBodies(t *testing.T) {
	sum := sha512.Sum512(nil)
	// 100 bytes, and more when it is compressed
	incompressible := base64.StdEncoding.EncodeToString(append(sum[:], sum[:11]...))
	for name, replace := range map[string]func(r *http.Request, plain io.ReadCloser){
		// as echo's Decompress
		"the headers stay": func(r *http.Request, plain io.ReadCloser) { r.Body = plain },
		"the encoding's header is deleted": func(r *http.Request,
			plain io.ReadCloser,
		) {
			r.Header.Del("Content-Encoding")
			r.Body = plain
		},
		"both headers are deleted": func(r *http.Request, plain io.ReadCloser) {
			r.Header.Del("Content-Encoding")
			r.Header.Del("Content-Length")
			r.Body = plain
		},
		"the length is unknown": func(r *http.Request,
			plain io.ReadCloser,
		) {
			r.ContentLength = -1
			r.Body = plain
		},
		"a limit of the plain body outside": func(r *http.Request,
			plain io.ReadCloser,
		) {
			r.Body = http.MaxBytesReader(nil, plain, 1000)
		},
		"it is kept in memory": func(r *http.Request, plain io.ReadCloser) {
			b, err := io.ReadAll(plain)
			if err != nil {
				t.Error(err)
			}
			r.Header.Del("Content-Encoding")
			r.Body = io.NopCloser(bytes.NewReader(b))
		},
	} {
		for _, chunked := range []bool{false, true} {
			for _, text := range []string{`{"a":1}`, strings.Repeat("a", 100), incompressible, ""} {
				if text == "" && name != "the headers stay" {
					continue // nothing shows that the body was not read by somebody
				}
				t.Run(fmt.Sprintf("%s, chunked %v, %d bytes", name, chunked, len(text)), func(t *testing.T) {
					a := newAPI(t, func(c *config) { c.MaxBody = 100 })
					server := httptest.NewServer(gunzip(a.create(), replace))
					defer server.Close()
					for _, again := range []bool{false, true} {
						compressed := gzipped(t, text)
						req := request{}.make(t.Context())
						out, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders",
							strings.NewReader(compressed))
						if err != nil {
							t.Fatal(err)
						}
						out.Header = req.Header
						out.Header.Set("Content-Encoding", "gzip")
						if chunked {
							out.ContentLength = -1
						}
						res, err := server.Client().Do(out)
						if err != nil {
							t.Fatal(err)
						}
						got, _ := io.ReadAll(res.Body)
						res.Body.Close()
						if replayed := res.Header.Get("Idempotent-Replayed") == "true"; res.StatusCode != http.StatusCreated || string(got) != "created "+text || replayed != again {
							t.Errorf("%d %s, replayed %v: %s", res.StatusCode, got, replayed, &a.log)
						}
					}
					a.wantEffects(1)
				})
			}
		}
	}
	t.Run("a small body that becomes a large one", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.MaxBody = 100 })
		h := gunzip(a.create(), func(r *http.Request, plain io.ReadCloser) { r.Body = plain })
		r := request{body: gzipped(t, strings.Repeat("a", 10<<20))}.make(t.Context())
		wantProblem(t, serve(h, r), http.StatusRequestEntityTooLarge, httpidem.BodyTooLarge)
		a.wantEffects(0)
	})
	t.Run("a compressed body that ends early", func(t *testing.T) {
		a := newAPI(t)
		h := gunzip(a.create(), func(r *http.Request, plain io.ReadCloser) { r.Body = plain })
		compressed := gzipped(t, "abcdefgh")
		r := request{body: compressed[:len(compressed)-4]}.make(t.Context())
		wantProblem(t, serve(h, r), http.StatusBadRequest, httpidem.BodyIncomplete)
		a.wantEffects(0)
	})
}

// Middleware that reads a part of the server's own body and puts nothing back is a fault of the program.
func TestPartlyReadBodies(t *testing.T) {
	for name, read := range map[string]func(w http.ResponseWriter, r *http.Request){
		"one byte":  func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) },
		"all of it": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) },
		"all of it, below a limit": func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1000)
			_, _ = io.ReadAll(r.Body)
		},
		"one byte, of an encoded body": func(_ http.ResponseWriter, r *http.Request) {
			r.Header.Set("Content-Encoding", "gzip")
			_, _ = r.Body.Read(make([]byte, 1))
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				a := newAPI(t)
				guarded := a.create()
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					read(w, r)
					guarded.ServeHTTP(w, r)
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				out, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders",
					strings.NewReader("abc"))
				if err != nil {
					t.Fatal(err)
				}
				out.Header = request{}.make(t.Context()).Header
				res, err := server.Client().Do(out)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if got, _ := io.ReadAll(res.Body); res.StatusCode != 500 || !strings.Contains(string(got),
					string(httpidem.Misused)) || (res.ProtoMajor == 2) != http2 {
					t.Errorf("%s %d %s", res.Proto, res.StatusCode, got)
				}
				a.wantEffects(0)
			})
		}
	}
}

// A body is refused if a middleware has read a part of it, also if another middleware limits its length.
func TestTruncatedBodiesBehindALimit(t *testing.T) {
	readSome := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadFull(r.Body, make([]byte, 4)); err != nil {
				panic(err)
			}
			next.ServeHTTP(w, r)
		})
	}
	limited := func(limit int64) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, limit) }
	}
	for name, test := range map[string]struct {
		outside []func(http.Handler) http.Handler // from the inside to the outside
		status  int
	}{
		"longer than the limit":         {[]func(http.Handler) http.Handler{limited(10)}, 413},
		"longer than the outer limit":   {[]func(http.Handler) http.Handler{limited(1000), limited(10)}, 413},
		"longer than a limit inside":    {[]func(http.Handler) http.Handler{limited(10), limited(1000)}, 413},
		"read before, over the limit":   {[]func(http.Handler) http.Handler{readSome, limited(10)}, 413},
		"read before, within the limit": {[]func(http.Handler) http.Handler{readSome, limited(1000)}, 500},
		"read before, within limits":    {[]func(http.Handler) http.Handler{readSome, limited(100), limited(1000)}, 500},
		"a limit behind the reader":     {[]func(http.Handler) http.Handler{limited(1000), readSome}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			h := a.create()
			for _, outside := range test.outside {
				h = outside(h)
			}
			server := httptest.NewServer(h)
			defer server.Close()
			out, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders",
				strings.NewReader("0123456789ab"))
			if err != nil {
				t.Fatal(err)
			}
			out.Header = request{}.make(t.Context()).Header
			res, err := server.Client().Do(out)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != test.status {
				t.Errorf("%d %s, want %d", res.StatusCode, got, test.status)
			}
			a.wantEffects(0)
		})
	}
}
