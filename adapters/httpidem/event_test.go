package httpidem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/httpkey"
)

// gathered has all events of a Guard.
type gathered struct{ events []httpidem.Event }

func (g *gathered) trace() *httpidem.Trace {
	add := func(_ context.Context, e httpidem.Event) { g.events = append(g.events, e) }
	return &httpidem.Trace{Committed: add, Recorded: add, Unstored: add, Replayed: add, Refused: add, Panicked: add}
}

func (g *gathered) last(t *testing.T) httpidem.Event {
	t.Helper()
	if len(g.events) == 0 {
		t.Fatal("no event")
	}
	return g.events[len(g.events)-1]
}

// Each request has one decision, and those about one key have the identity that the database has.
func TestDecisions(t *testing.T) {
	var g gathered
	a := newAPI(t, func(c *config) { c.Trace, c.Optional = g.trace(), true })
	panics := a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error { panic("bug") })
	id := httpkey.Identity{Name: "api", Principal: "ann", Method: "POST", Target: "/orders", Key: "k"}.Under(secret("a"))
	for _, tt := range []struct {
		name string
		h    http.Handler
		q    request
		want httpidem.Decision
		key  bool
	}{
		{"no key", a.create(), request{noKey: true}, httpidem.Unkeyed, false},
		{"a malformed key", a.create(), request{key: "a b"}, httpidem.Refused, false},
		{"400", a.status(400), request{}, httpidem.Undone, true},
		{"the handler fails", a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error {
			return errHandler
		}), request{}, httpidem.Refused, true},
		{"first", a.create(), request{}, httpidem.First, true},
		{"a repeat", a.create(), request{}, httpidem.Replayed, true},
		{"another body", a.create(), request{body: "other"}, httpidem.Mismatched, true},
		{"402", a.status(402), request{key: "k2"}, httpidem.Recorded, false},
	} {
		a.send(tt.h, tt.q)
		e := g.last(t)
		if e.Decision != tt.want || tt.key && e.Key != id || e.Decision == httpidem.Unkeyed && e.Key != "" || e.Took <= 0 {
			t.Errorf("%s: %+v, want %s", tt.name, e, tt.want)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		a.send(panics, request{key: "k3"})
	}()
	if e := g.last(t); e.Decision != httpidem.Panicked || e.Key == "" {
		t.Errorf("%+v, want %s", e, httpidem.Panicked)
	}
	if len(g.events) != 9 {
		t.Errorf("%d events of 9 requests", len(g.events))
	}
}

// Waited is the time that another request took, and Age is that since its COMMIT.
func TestWaitedAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gathered
		a := newAPI(t, func(c *config) { c.Trace, c.Wait = g.trace(), 10*time.Second })
		h := a.slow(3 * time.Second)
		go a.send(h, request{})
		<-time.After(time.Second)
		a.send(h, request{}) // waits for two seconds more
		if e := g.last(t); e.Decision != httpidem.Replayed || e.Waited != 2*time.Second {
			t.Errorf("%s after %v, want %s after 2s", e.Decision, e.Waited, httpidem.Replayed)
		}
		<-time.After(time.Hour)
		a.send(h, request{})
		// the database keeps an expiry, and claims are made when a request begins
		if e := g.last(t); e.Waited != 0 || e.Age < time.Hour || e.Age > time.Hour+5*time.Second {
			t.Errorf("waited %v, age %v; want 0 and an hour", e.Waited, e.Age)
		}
	})
}

// A COMMIT without an answer is reported, also when a later attempt has found out what became of it.
func TestInDoubtIsReported(t *testing.T) {
	var g gathered
	a := newAPI(t, func(c *config) { c.Trace = g.trace() })
	a.store.OnCommit = func(ctx context.Context, tx *deduptest.Tx) error {
		a.store.OnCommit = nil
		return errors.Join(tx.Commit(ctx), deduptest.ErrDown)
	}
	a.send(a.create(), request{})
	if e := g.last(t); !e.InDoubt || e.Decision != httpidem.Replayed {
		t.Errorf("%+v: want a replay that was in doubt", e)
	}
	a.send(a.create(), request{})
	if e := g.last(t); e.InDoubt || e.Decision != httpidem.Replayed {
		t.Errorf("%+v: want a replay that is not in doubt", e)
	}
}

// Hooks get the ctx of Start, and so does the handler.
func TestStart(t *testing.T) {
	type key struct{}
	var seen []any
	look := func(ctx context.Context) { seen = append(seen, ctx.Value(key{})) }
	hooks := &httpidem.Trace{
		Start: func(ctx context.Context, e httpidem.Event) context.Context {
			return context.WithValue(ctx, key{}, e.Guard)
		},
		Committed: func(ctx context.Context, _ httpidem.Event) { look(ctx) },
	}
	a := newAPI(t, func(c *config) {
		c.Trace = hooks.Then(&httpidem.Trace{Start: func(context.Context, httpidem.Event) context.Context { return nil }})
	})
	a.want(a.guard.Handle(func(ctx context.Context, _ *deduptest.Tx, _ http.ResponseWriter, r *http.Request) error {
		look(ctx)
		look(r.Context())
		return nil
	}), request{}, 200, false)
	if diff := cmp.Diff([]any{"api", "api", "api"}, seen); diff != "" {
		t.Errorf("values of ctx (-want +got):\n%s", diff)
	}
	b := newAPI(t, func(c *config) {
		c.Trace = &httpidem.Trace{Start: func(context.Context, httpidem.Event) context.Context { panic("a bug") }}
	})
	b.want(b.create(), request{}, http.StatusCreated, false)
}

// The line about a request has its decision and its identity, and nothing that the client has sent.
func TestLogDecisions(t *testing.T) {
	var log bytes.Buffer
	a := newAPI(t, func(c *config) {
		c.Trace = httpidem.LogDecisions(slog.New(slog.NewJSONHandler(&log, nil)))
	})
	q := request{key: "canary-key", user: "canary-user", body: "canary-body", target: "/orders?canary=1"}
	a.want(a.create(), q, http.StatusCreated, false)
	a.want(a.create(), q, http.StatusCreated, true)
	q.body = "other"
	a.want(a.create(), q, 422, false)
	var decisions []string
	for line := range strings.Lines(log.String()) {
		var l struct {
			Decision, Reason, Key, Guard, Method string
			Status                               int
			Age                                  *int64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if len(l.Key) != 64 || l.Guard != "api" || l.Method != "POST" || (l.Age != nil) != (l.Decision == "replayed") {
			t.Error(line)
		}
		decisions = append(decisions, l.Decision)
	}
	if diff := cmp.Diff([]string{"new", "replayed", "mismatched"}, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), "canary") {
		t.Errorf("a line has what the client sent:\n%s", &log)
	}
}

// The database learns once that the keys of the Guard are HTTP requests, and a name that another source has is reported.
func TestSourceIsRecorded(t *testing.T) {
	a := newAPI(t)
	a.want(a.create(), request{}, http.StatusCreated, false)
	if err := a.store.RegisterSources(t.Context(), "api", []string{"kafka topic orders"}); !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("a consumer of messages could have the name of the Guard: %v", err)
	}
	taken := deduptest.NewStore()
	if err := taken.RegisterSources(t.Context(), "api", []string{"kafka topic orders"}); err != nil {
		t.Fatal(err)
	}
	b := newAPIOn(t, taken)
	b.want(b.create(), request{}, http.StatusCreated, false)
	b.want(b.create(), request{key: "2"}, http.StatusCreated, false)
	if n := strings.Count(b.log.String(), "another service has the name"); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, &b.log)
	}
}

// After a secret was replaced, the event of a repeat has the identity of the row that the first request has made: under
// the new secret there is none, and an operator would read that the request was not completed.
func TestKeyOfAFormerSecret(t *testing.T) {
	var before, after gathered
	a := newAPI(t, func(c *config) { c.Trace = before.trace() })
	a.want(a.create(), request{}, http.StatusCreated, false)
	b := newAPIOn(t, a.store, func(c *config) {
		c.Secrets, c.Trace = [][]byte{secret("b"), secret("a")}, after.trace()
	})
	b.want(b.create(), request{}, http.StatusCreated, true)
	b.want(b.create(), request{body: "other"}, http.StatusUnprocessableEntity, false)
	for _, e := range after.events {
		if want := before.last(t).Key; e.Key != want {
			t.Errorf("%s: key %s, want %s", e.Decision, e.Key, want)
		}
		if _, found, err := a.store.Lookup(t.Context(), dedup.Key{Consumer: "api", ID: e.Key}); !found || err != nil {
			t.Errorf("%s: the database does not have the key: %v", e.Decision, err)
		}
	}
}
