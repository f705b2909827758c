package httpidem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// writes returns a handler that makes an effect and then calls f.
func (a *api) writes(f func(w http.ResponseWriter)) http.Handler {
	return a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := tx.Add("effect"); err != nil {
			return err
		}
		f(w)
		return nil
	})
}

// The response that the client of the first request sees, and the one of a replay.
func TestResponses(t *testing.T) {
	for _, tt := range []struct {
		name          string
		write         func(w http.ResponseWriter)
		status        int
		body          string
		first, replay http.Header // besides Content-Length and Cache-Control: no-store
	}{
		{
			"case 29: only allowed headers are stored", func(w http.ResponseWriter) {
				for _, name := range []string{
					"Content-Type", "Content-Language", "Location", "Etag", "Link",
					"Set-Cookie", "Www-Authenticate", "Authentication-Info", "X-Csrf-Token", "X-Request-Id",
					"Access-Control-Allow-Origin",
				} {
					w.Header().Set(name, "v")
				}
				w.Header().Set("Cache-Control", "private")
			}, 200, "",
			http.Header{
				"Content-Type": {"v"}, "Content-Language": {"v"}, "Location": {"v"}, "Etag": {"v"}, "Link": {"v"},
				"Cache-Control": {"private"},
				"Set-Cookie":    {"v"}, "Www-Authenticate": {"v"}, "Authentication-Info": {"v"}, "X-Csrf-Token": {"v"},
				"X-Request-Id": {"v"}, "Access-Control-Allow-Origin": {"v"},
			},
			http.Header{
				"Content-Type": {"v"}, "Content-Language": {"v"}, "Location": {"v"}, "Etag": {"v"},
				"Link": {"v"}, "Cache-Control": {"private"},
			},
		},
		{
			"case 29: Config.Headers adds some", func(w http.ResponseWriter) { w.Header()["X-Order"] = []string{"1", "2"} }, 200, "",
			http.Header{"X-Order": {"1", "2"}},
			http.Header{"X-Order": {"1", "2"}},
		},
		{
			"case 30: headers of the connection are made again", func(w http.ResponseWriter) {
				w.Header().Set("Content-Length", "99")
				w.Header().Set("Transfer-Encoding", "chunked")
				w.Header().Set("Date", "yesterday")
				w.Header().Set("Connection", "close")
				w.Header().Set("Keep-Alive", "1")
				io.WriteString(w, "abc")
			}, 200, "abc",
			http.Header{
				"Content-Type": {"text/plain; charset=utf-8"}, "Date": {"yesterday"}, "Connection": {"close"},
				"Keep-Alive": {"1"},
			},
			http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		},
		{
			"case 32: 103 is not the response", func(w http.ResponseWriter) {
				w.Header().Set("Link", "</style.css>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Del("Link")
				w.WriteHeader(http.StatusAccepted)
			}, 202, "", nil, nil,
		},
		{
			"case 32: trailers are dropped", func(w http.ResponseWriter) {
				w.Header().Set("Trailer", "X-Sum")
				w.WriteHeader(http.StatusOK)
				w.Header().Set("X-Sum", "1")
				w.Header().Set(http.TrailerPrefix+"X-Other", "1")
			}, 200, "", nil, nil,
		},
		{
			"case 29: headers that protect a download are stored", func(w http.ResponseWriter) {
				w.Header()["Content-Type"] = nil // net/http must not guess
				w.Header().Set("Content-Disposition", "attachment")
				w.Header().Set("Content-Range", "bytes 0-2/9")
				w.Header().Set("X-Content-Type-Options", "nosniff")
				io.WriteString(w, "<b>")
			}, 200, "<b>",
			http.Header{
				"Content-Type": nil, "Content-Disposition": {"attachment"}, "Content-Range": {"bytes 0-2/9"},
				"X-Content-Type-Options": {"nosniff"},
			},
			http.Header{
				"Content-Type": nil, "Content-Disposition": {"attachment"}, "Content-Range": {"bytes 0-2/9"},
				"X-Content-Type-Options": {"nosniff"},
			},
		},
		{
			"case 30: names in other letters", func(w http.ResponseWriter) {
				for _, name := range []string{"content-length", "transfer-encoding", "etag", "X-order"} {
					w.Header()[name] = []string{"9"}
				}
			}, 200, "", http.Header{"Etag": {"9"}, "X-Order": {"9"}}, http.Header{"Etag": {"9"}, "X-Order": {"9"}},
		},
		{"case 34: no WriteHeader is 200", func(http.ResponseWriter) {}, 200, "", nil, nil},
		{"case 34: the first WriteHeader wins", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusTeapot)
		}, 201, "", nil, nil},
		{"case 34: headers after WriteHeader do not count", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("Location", "/late")
		}, 201, "", nil, nil},
		{"case 35: 204 has no body", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}, 204, "", nil, nil},
		{"case 35: 304 has no body", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotModified)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}, 304, "", nil, nil},
		{
			"case 28: io.Copy is captured", func(w http.ResponseWriter) { io.Copy(w, strings.NewReader("copied")) },
			200, "copied",
			http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
			http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Headers = []string{"x-order"} })
			h := a.writes(tt.write)
			for i, want := range []http.Header{tt.first, tt.replay} {
				w := a.want(h, request{}, tt.status, i > 0)
				got := w.Header().Clone()
				got.Del("Idempotent-Replayed")
				got.Del("Content-Length")
				want = want.Clone()
				if want == nil {
					want = http.Header{}
				}
				if want.Get("Cache-Control") == "" {
					want.Set("Cache-Control", "no-store")
				}
				if diff := cmp.Diff(want, got); diff != "" || w.Body.String() != tt.body {
					t.Errorf("response %d: body %q, headers (-want +got):\n%s", i, w.Body, diff)
				}
			}
			a.wantEffects(1)
		})
	}
}

// A handler cannot get past the buffer.
func TestResponseController(t *testing.T) {
	a := newAPI(t)
	deadlines := 0
	h := a.writes(func(w http.ResponseWriter) {
		io.WriteString(w, "data: 1\n\n")
		rc := http.NewResponseController(w)
		_, _, hijacked := rc.Hijack()
		for name, err := range map[string]error{
			"Flush": rc.Flush(), "Hijack": hijacked,
			"EnableFullDuplex": rc.EnableFullDuplex(),
		} {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("case 27: %s: %v", name, err)
			}
		}
		for name, is := range map[string]bool{
			"case 27: http.Flusher": is[http.Flusher](w), "case 27: http.Hijacker": is[http.Hijacker](w),
			"http.Pusher":            is[http.Pusher](w),
			"case 28: io.ReaderFrom": is[io.ReaderFrom](w),
			"case 28: Unwrap":        is[interface{ Unwrap() http.ResponseWriter }](w),
		} {
			if is {
				t.Errorf("the handler's ResponseWriter implements %s", name)
			}
		}
		for _, err := range []error{
			rc.SetReadDeadline(time.Now().Add(time.Minute)),
			rc.SetWriteDeadline(time.Now().Add(time.Minute)),
		} {
			if err == nil {
				deadlines++
			}
		}
	})
	server := httptest.NewServer(h)
	defer server.Close()
	r := request{}.make(t.Context())
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", server.Listener.Addr().String()
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if deadlines != 2 {
		t.Errorf("case 27: %d of 2 deadlines were accepted", deadlines)
	}
	a.wantEffects(1)
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// Responses that are refused before COMMIT.
func TestImpossibleResponses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		write  func(w http.ResponseWriter)
		reason httpidem.Reason
	}{
		{"case 26: too long", func(w http.ResponseWriter) { w.Write(make([]byte, 1025)) }, httpidem.ResponseTooLong},
		{"case 26: too long in pieces", func(w http.ResponseWriter) {
			for range 11 {
				w.Write(make([]byte, 100))
			}
		}, httpidem.ResponseTooLong},
		{"case 26: headers too long", func(w http.ResponseWriter) { w.Header().Set("Location", strings.Repeat("x", 1025)) }, httpidem.ResponseTooLong},
		{"case 32: 101", func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }, httpidem.Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hooks := 0
			a := newAPI(t, func(c *config) {
				c.MaxResponse = 1024
				c.Trace = &httpidem.Trace{Refused: func(_ context.Context, e httpidem.Event) {
					if e.Reason == tt.reason && e.Err != nil && e.Status == 500 {
						hooks++
					}
				}}
			})
			a.refused(a.writes(tt.write), request{}, http.StatusInternalServerError, tt.reason)
			a.wantEffects(0)
			if hooks != 1 {
				t.Errorf("%d hooks for %s", hooks, tt.reason)
			}
			a.want(a.create(), request{}, http.StatusCreated, false) // the key is free
		})
	}
}

func TestInvalidStatus(t *testing.T) {
	for _, status := range []int{-1, 0, 42, 99, 1000} {
		a := newAPI(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("case 34, E11: WriteHeader(%d) did not panic within the handler", status)
				}
			}()
			a.send(a.status(status), request{})
		}()
		a.wantEffects(0)
		a.want(a.create(), request{}, http.StatusCreated, false)
	}
}
