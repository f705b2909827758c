package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/internal/test/child"
	"github.com/txonce/txonce/internal/test/parallel"
)

// The modes of a child.
const (
	steady       = "steady"
	beforeCommit = "before-commit" // it kills itself after the handler's work, before COMMIT
	afterCommit  = "after-commit"  // it kills itself after COMMIT, before the response
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(new(mysql.NopLogger)) // it would log each connection that a test cuts
	child.Main(serveChild)
	parallel.Tests(6) // most tests wait for disks and locks
	os.Exit(m.Run())
}

// serveChild returns what a child serves. args are an engine, a mode and a DSN.
func serveChild(ctx context.Context, args []string) (http.Handler, error) {
	name, mode, dsn := args[0], args[1], args[2]
	for _, e := range allEngines {
		if e.Name != name {
			continue
		}
		s := settings{wait: 500 * time.Millisecond, conns: 10}
		if mode == afterCommit {
			s.trace = &httpidem.Trace{Committed: func(context.Context, httpidem.Event) { child.KillMyself() }}
		}
		n, err := e.open(ctx, dsn, s)
		if err != nil {
			return nil, err
		}
		order := e.order
		if mode == steady {
			order = e.tokenOrder
		}
		if mode == beforeCommit {
			order = func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter,
				r *http.Request,
			) error {
				defer child.KillMyself()
				return e.order(ctx, exec, w, r)
			}
		}
		return n.handle(order), nil
	}
	return nil, fmt.Errorf("no engine %q", name)
}

// postOrder sends an order to a child.
func postOrder(ctx context.Context, p *child.Process, client *http.Client, key,
	body string,
) (status int, header http.Header, got string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "ann")
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b), err
}

// A process dies around COMMIT.
func TestKilled(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		for _, tt := range []struct {
			name, mode string
			effects    int
		}{
			{
				"case 15: killed after the handler's work, before COMMIT: nothing is left, and the retry runs",
				beforeCommit, 0,
			},
			{"case 16: killed after COMMIT, before the response: the retry is a replay", afterCommit, 1},
		} {
			t.Run(tt.name, func(t *testing.T) {
				dsn := e.Create(t)
				p, err := child.Start(e.Name, tt.mode, dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Kill()
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				if status, _, _, err := postOrder(t.Context(), p, client, "k", "x"); err == nil {
					t.Fatalf("the killed process answered %d", status)
				}
				n := e.node(t, dsn, settings{})
				n.wantEffects(t, tt.effects)
				w := untilAnswered(t, n.handle(e.order), request{key: "k", body: "x"})
				if w.Code != http.StatusCreated || isReplay(w) != (tt.effects == 1) || w.Body.String() != "ordered x" {
					t.Errorf("the retry got %d %s, replayed %v", w.Code, w.Body, isReplay(w))
				}
				n.wantEffects(t, 1)
			})
		}
	})
}
