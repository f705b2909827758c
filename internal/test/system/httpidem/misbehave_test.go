package httpidem_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

type execFunc = func(sql string, args ...any) error

// overHTTP sends a POST over a real connection. status 0: no response.
func overHTTP(t testing.TB, url, key, body string, header ...string) (status int, replayed bool, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "ann")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, false, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, false, err.Error()
	}
	return res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(b)
}

// TestMisbehavingHandlers runs a handler that misbehaves the first time and works the second time.
func TestMisbehavingHandlers(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		for name, bad := range map[string]func(exec execFunc, w http.ResponseWriter, r *http.Request) error{
			"goexit": func(execFunc, http.ResponseWriter, *http.Request) error { runtime.Goexit(); return nil },
			"goexit after write": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(201)
				_, _ = w.Write([]byte("x"))
				runtime.Goexit()
				return nil
			},
			"panic nil": func(execFunc, http.ResponseWriter, *http.Request) error { panic(nil) },
			"abort": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(201)
				panic(http.ErrAbortHandler)
			},
			"text ROLLBACK": func(exec execFunc, w http.ResponseWriter, _ *http.Request) error {
				_ = exec("ROLLBACK")
				w.WriteHeader(201)
				return nil
			},
			"bad statement ignored": func(exec execFunc, w http.ResponseWriter, _ *http.Request) error {
				_ = exec("SELEKT")
				w.WriteHeader(204)
				return nil
			},
			"204 with body": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(204)
				_, err := w.Write([]byte("x"))
				return err
			},
			"101": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(101); return nil },
			"hijack": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				_, _, err := http.NewResponseController(w).Hijack()
				return err
			},
			"flush": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				_, _ = w.Write([]byte("x"))
				return http.NewResponseController(w).Flush()
			},
			"read deadline past": func(_ execFunc, w http.ResponseWriter, _ *http.Request) error {
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
				return io.ErrUnexpectedEOF
			},
			"late writes": func(_ execFunc, w http.ResponseWriter, r *http.Request) error {
				go func() {
					for range 2000 {
						_, _ = w.Write([]byte("late"))
						w.WriteHeader(500)
						runtime.Gosched()
					}
				}()
				return io.ErrUnexpectedEOF
			},
		} {
			t.Run(name, func(t *testing.T) {
				dsn := e.Create(t)
				n := e.node(t, dsn, settings{conns: 2, wait: 500 * time.Millisecond})
				calls := 0
				h := n.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
					if r.Header.Get("X-Bad") != "" {
						calls++
						if err := exec(e.Insert, "bad", "bad"); err != nil {
							return err
						}
						return bad(exec, w, r)
					}
					return e.order(ctx, exec, w, r)
				})
				s := httptest.NewServer(h)
				defer s.Close()
				for i := range 5 { // more than slots and connections
					status, replayed, text := overHTTP(t, s.URL+"/orders", "k", "b", "X-Bad", "1")
					t.Log(i, status, replayed, text)
					got, err := n.count(t.Context(), "SELECT count(*) FROM effects")
					if err != nil {
						t.Fatal(err)
					}
					if status >= 200 && status < 300 && got != 1 {
						t.Errorf("2xx with %d effects", got)
					}
					if status >= 400 && got != 0 || status == 0 && got != 0 {
						t.Errorf("status %d and %d effects", status, got)
					}
					if status >= 200 && status < 300 {
						return
					}
				}
				began := time.Now()
				if status, _, text := overHTTP(t, s.URL+"/orders", "stranger", "b"); status != 201 ||
					time.Since(began) > 2*time.Second {
					t.Errorf("stranger: %d %s after %v", status, text, time.Since(began))
				}
				if status, _, text := overHTTP(t, s.URL+"/orders", "k", "b"); status != 201 {
					t.Errorf("retry: %d %s", status, text)
				}
				if got, err := n.count(t.Context(), "SELECT count(*) FROM effects"); err != nil || got != 2 {
					t.Errorf("%d effects, %v; want 2", got, err)
				}
			})
		}
	})
}

// A handler may leave a temporary table, because no other handler runs in its transaction.
func TestAHandlerMayLeaveATemporaryTable(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		n := e.node(t, e.Create(t), settings{conns: 2, wait: time.Minute})
		s := httptest.NewServer(n.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
			if err := exec(`CREATE TEMPORARY TABLE staged (n int)`); err != nil {
				return err
			}
			return e.order(ctx, exec, w, r)
		}))
		defer s.Close()
		for i := range 2 {
			if status, replayed, text := overHTTP(t, s.URL+"/orders", "k", "b"); status != http.StatusCreated ||
				replayed != (i == 1) {
				t.Errorf("request %d: %d, replayed %v: %s", i, status, replayed, text)
			}
		}
	})
}
