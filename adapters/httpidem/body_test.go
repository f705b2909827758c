package httpidem_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestBodies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *http.Request)
		status int
		reason httpidem.Reason
	}{
		{"case 36: longer than MaxBody", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 101))), 101
		}, 413, httpidem.BodyTooLarge},
		{"case 36: longer than MaxBody, without a length", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 101))), -1
		}, 413, httpidem.BodyTooLarge},
		{"case 36: the form was parsed", func(r *http.Request) { _ = r.ParseForm() }, 500, httpidem.Misused},
		{"case 36: the multipart form was parsed", func(r *http.Request) {
			r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
			_ = r.ParseMultipartForm(100)
		}, 500, httpidem.Misused},
		{"case 36: it was read", func(r *http.Request) { io.ReadAll(r.Body) }, 500, httpidem.Misused},
		{"case 37: truncated", func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), broken{})) }, 400, httpidem.BodyIncomplete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.MaxBody = 100 })
			r := request{body: "a=1"}.make(t.Context())
			tt.change(r)
			wantProblem(t, serve(a.create(), r), tt.status, tt.reason)
			a.wantEffects(0)
			a.want(a.create(), request{body: strings.Repeat("x", 100)}, http.StatusCreated, false) // no row is left
		})
	}
	t.Run("case 36: each attempt gets the whole body", func(t *testing.T) {
		a := newAPI(t)
		runs := 0
		h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			runs++
			if err := r.ParseForm(); err != nil || r.PostForm.Get("a") != "1" || r.ContentLength != 3 {
				t.Errorf("run %d: %v, %v", runs, r.PostForm, err)
			}
			if runs == 1 {
				return deduptest.ErrDeadlock
			}
			return tx.Add("effect")
		})
		a.want(h, request{body: "a=1", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}},
			http.StatusOK, false)
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Over a real connection, because net/http's server reads bodies.
func TestBodiesOverTCP(t *testing.T) {
	const head = "POST /orders HTTP/1.1\r\nHost: x\r\nX-User: ann\r\nIdempotency-Key: k\r\n"
	for _, tt := range []struct {
		name, request string
		status        int
		effects       int
	}{
		{
			"case 36: Expect: 100-continue and too long", head + "Expect: 100-continue\r\nContent-Length: 101\r\n\r\n",
			413, 0,
		},
		{"case 36: Expect: 100-continue", head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", 201, 1},
		{"case 36: chunked", head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 201, 1},
		{"case 36: chunked and too long", head + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) +
			"\r\n0\r\n\r\n", 413, 0},
		{"case 37: fewer bytes than Content-Length", head + "Content-Length: 5\r\n\r\n{}", 400, 0},
		{"case 37: a chunk that ends early", head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{}", 400, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.MaxBody = 100 })
			server := httptest.NewServer(a.create())
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, tt.request)
			if tt.status == http.StatusBadRequest { // a complete request's client must not seem to be gone
				conn.(*net.TCPConn).CloseWrite()
			}
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			for err == nil && res.StatusCode == http.StatusContinue {
				res, err = http.ReadResponse(in, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != tt.status {
				t.Errorf("status %d, want %d", res.StatusCode, tt.status)
			}
			a.wantEffects(tt.effects)
		})
	}
}

// Methods that are not guarded, and requests without a key.
func TestUnguarded(t *testing.T) {
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete,
	} {
		t.Run("case 33: "+method, func(t *testing.T) {
			a := newAPI(t)
			for range 2 {
				r := request{method: method}.make(t.Context())
				r.Header.Del("X-User") // nobody asks for the principal
				if w := serve(a.create(), r); w.Code != http.StatusCreated || isReplay(w) {
					t.Errorf("Handle: status %d", w.Code)
				}
			}
			a.wantEffects(2) // each in a transaction of its own
			passed := a.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := a.guard.Tx(r.Context()); err == nil {
					t.Error("Wrap: there is a transaction")
				}
				if _, ok := w.(*httptest.ResponseRecorder); !ok {
					t.Errorf("Wrap: the ResponseWriter is a %T", w)
				}
				w.WriteHeader(http.StatusTeapot)
			}))
			a.want(passed, request{method: method}, http.StatusTeapot, false)
		})
	}
	t.Run("Config.Methods", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Methods = []string{http.MethodPut} })
		a.want(a.create(), request{method: http.MethodPut}, http.StatusCreated, false)
		a.want(a.create(), request{method: http.MethodPut}, http.StatusCreated, true)
		a.want(a.create(), request{method: http.MethodPost}, http.StatusCreated, false)
		a.want(a.create(), request{method: http.MethodPost}, http.StatusCreated, false)
	})
	t.Run("E16: an optional key that is absent: a transaction without records, buffered", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Optional = true })
		for range 2 {
			a.want(a.create(), request{noKey: true}, http.StatusCreated, false)
		}
		a.wantEffects(2)
		a.want(a.status(http.StatusPaymentRequired), request{noKey: true}, http.StatusPaymentRequired, false)
		a.wantEffects(2) // rolled back
		a.refused(a.create(), request{noKey: true, header: http.Header{"Idempotency-Key": {""}}}, http.StatusBadRequest,
			httpidem.MalformedKey)

		failed := a.store
		failed.OnCommit = func(context.Context, *deduptest.Tx) error { return deduptest.ErrDown }
		runs := 0
		h := a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter,
			*http.Request,
		) error {
			runs++
			return nil
		})
		a.refused(h, request{noKey: true}, http.StatusServiceUnavailable, httpidem.Unavailable)
		if runs != 1 {
			t.Errorf("%d runs: without a key nothing shows whether the first was committed", runs)
		}
	})
	t.Run("case 44: mounted twice", func(t *testing.T) {
		a := newAPI(t)
		wantInner := func(h http.Handler) {
			t.Helper()
			a.refused(h, request{}, http.StatusInternalServerError, httpidem.Misused)
		}
		wantInner(a.guard.Wrap(a.create()))
		wantInner(a.guard.Wrap(a.guard.Wrap(a.create())))
		other := newAPIOn(t, a.store, func(c *config) { c.Name = "other" })
		wantInner(other.guard.Wrap(a.create()))
		a.wantEffects(0)
	})
}

// What layers outside have done to a request.
func TestOuterReaders(t *testing.T) {
	t.Run("a query that was parsed", func(t *testing.T) {
		a := newAPI(t)
		r := request{method: http.MethodGet, target: "/orders?a=1", noKey: true}.make(t.Context())
		_ = r.FormValue("a")
		if w := serve(a.create(), r); w.Code != http.StatusCreated {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
	t.Run("case 36: an outer layer's limit", func(t *testing.T) {
		a := newAPI(t)
		r := request{body: "0123456789ab"}.make(t.Context())
		r.ContentLength = -1
		w := serve(http.MaxBytesHandler(a.create(), 10), r)
		wantProblem(t, w, http.StatusRequestEntityTooLarge, httpidem.BodyTooLarge)
		if !strings.Contains(w.Body.String(), "more than 10 bytes") {
			t.Errorf("the client sees %s", w.Body)
		}
	})
}

// Principal and Fingerprint may read the form. They take nothing from the handler.
func TestFormFingerprint(t *testing.T) {
	a := newAPI(t, func(c *config) {
		c.Principal = func(r *http.Request) (string, error) { return r.FormValue("user"), nil }
		c.Fingerprint = func(r *http.Request, _ []byte) ([]byte, error) { return []byte(r.FormValue("order")), nil }
	})
	h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(w, r.FormValue("order"))
		return errors.Join(err, tx.Add("effect"))
	})
	form := func(body string) request {
		return request{body: body, header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}
	}
	if w := a.want(h, form("user=ann&order=1"), http.StatusOK, false); w.Body.String() != "1" {
		t.Errorf("the handler has read order %q", w.Body)
	}
	a.want(h, form("order=1&user=ann"), http.StatusOK, true)
	a.refused(h, form("user=ann&order=2"), http.StatusUnprocessableEntity, httpidem.Mismatch)
	a.wantEffects(1)
}
