package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/cli"
)

// serve shows the dashboard to this machine, changes nothing, and ends with its context.
func TestServe(t *testing.T) {
	for name, s := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, _ := s.dsn(t, t.TempDir())
			if err := runLine(t.Context(), io.Discard, "migrate", "up", "--dsn", dsn); err != nil {
				t.Fatal(err)
			}
			address, stop := serving(t, dsn)
			defer stop()
			if code, page := answer(t)(http.Get(address)); code != http.StatusOK ||
				!strings.Contains(page, "Overview") {
				t.Errorf("overview: %d\n%s", code, page)
			}
			if code, _ := answer(t)(http.PostForm(address+"/outbox",
				url.Values{
					"do": {"discard"}, "all": {"1"}, "topic": {"t"},
					"why": {"x"},
				})); code != http.StatusForbidden {
				t.Errorf("an action is answered by %d, want %d", code, http.StatusForbidden)
			}
		})
	}
}

// With --act-as, requests from this machine may replay and discard. Requests from other machines are refused.
func TestServeActAs(t *testing.T) {
	t.Parallel()
	dsn := t.TempDir() + "/test.db"
	if err := runLine(t.Context(), io.Discard, "migrate", "up", "--dsn", dsn); err != nil {
		t.Fatal(err)
	}
	if err := runLine(t.Context(), io.Discard, "serve", "--dsn", dsn, "--listen", "127.0.0.1:0", "--act-as",
		""); cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("an empty name: %v", err)
	}
	address, stop := serving(t, dsn, "--act-as", "ann")
	defer stop()
	form := url.Values{"do": {"unpark"}, "all": {"1"}, "topic": {"t"}, "until": {"2100-01-01"}, "why": {"x"}}
	if code, page := answer(t)(http.PostForm(address+"/outbox", form)); code != http.StatusConflict ||
		!strings.Contains(page, "no parked message matches") {
		t.Errorf("an action is answered by %d, want %d: it is allowed, and nothing is parked\n%s", code,
			http.StatusConflict, page)
	}
	for name, value := range map[string]string{"X-Forwarded-For": "192.0.2.7", "Origin": "https://attacker.example"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/outbox",
			strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(name, value)
		if code, _ := answer(t)(http.DefaultClient.Do(r)); code != http.StatusForbidden {
			t.Errorf("with %s: an action is answered by %d, want %d", name, code, http.StatusForbidden)
		}
	}
}

// serving runs txonce serve, and returns its address. stop ends it.
func serving(t *testing.T, dsn string, args ...string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- runLine(ctx, w, append([]string{"serve", "--dsn", dsn, "--listen", "127.0.0.1:0"}, args...)...)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v; the command: %v", line, err, <-served)
	}
	return regexp.MustCompile(`http://[0-9.:]+`).FindString(line), func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("after the end of ctx: %v", err)
		}
	}
}

func runLine(ctx context.Context, out io.Writer, args ...string) error {
	root := cli.New(cli.Config{Open: open, Serve: serve})
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(out)
	return root.ExecuteContext(ctx)
}

func answer(t *testing.T) func(*http.Response, error) (int, string) {
	return func(resp *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}
