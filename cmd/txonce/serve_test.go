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
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r, w := io.Pipe()
			served := make(chan error, 1)
			go func() {
				served <- runLine(ctx, w, "serve", "--dsn", dsn, "--listen", "127.0.0.1:0")
				w.Close()
			}()
			line, err := bufio.NewReader(r).ReadString('\n')
			if err != nil {
				t.Fatalf("%q, %v; the command: %v", line, err, <-served)
			}
			address := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
			if code, page := answer(t)(http.Get(address)); code != http.StatusOK || !strings.Contains(page, "Overview") {
				t.Errorf("overview: %d\n%s", code, page)
			}
			if code, _ := answer(t)(http.PostForm(address+"/outbox", url.Values{"do": {"discard"}, "all": {"1"}, "topic": {"t"}, "why": {"x"}})); code != http.StatusForbidden {
				t.Errorf("an action is answered by %d, want %d", code, http.StatusForbidden)
			}
			stop()
			if err := <-served; err != nil {
				t.Errorf("after the end of ctx: %v", err)
			}
		})
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
