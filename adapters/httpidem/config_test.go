package httpidem_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// pooled is a store with a pool of most connections.
type pooled struct {
	*deduptest.Store
	most int
}

func (p pooled) PoolUse() (int, int) { return 0, p.most }

// noResults is a store that cannot keep responses.
type noResults struct{ dedup.Store[*deduptest.Tx] }

func TestNewRefuses(t *testing.T) {
	for want, change := range map[string]func(c *config){
		"Config.Store is required": func(c *config) { c.Store = nil },
		"Config.Store: httpidem_test.noResults is not a driver.ResultStore":      func(c *config) { c.Store = noResults{c.Store} },
		`Config.Name "": dedup: key refused: the consumer's name is empty; give`: func(c *config) { c.Name = "" },
		"Config.Name \"aaa": func(c *config) { c.Name = strings.Repeat("a", 256) },
		"Config.Secrets is required: make a secret of 32 random bytes":                func(c *config) { c.Secrets = nil },
		"Config.Secrets[1] has 31 bytes: want 32 random bytes or more":                func(c *config) { c.Secrets = [][]byte{secret("a"), secret("b")[1:]} },
		"Config.Secrets[0] has 0 bytes":                                               func(c *config) { c.Secrets = [][]byte{{}} },
		"Config.Secrets[1] is there twice":                                            func(c *config) { c.Secrets = [][]byte{secret("a"), secret("a")} },
		"Config.Principal is required":                                                func(c *config) { c.Principal = nil },
		"Config.Window is 59m0s: want 1h0m0s":                                         func(c *config) { c.Window = 59 * time.Minute },
		"Config.Window is 24h0m0s, shorter than Config.ClientRetryHorizon, 25h0m0s: ": func(c *config) { c.ClientRetryHorizon = 25 * time.Hour },
		"Config.ClientRetryHorizon is -1s":                                            func(c *config) { c.ClientRetryHorizon = -time.Second },
		"Config.Timeout is -1s":                                                       func(c *config) { c.Timeout = -time.Second },
		"Config.MaxBody is -1":                                                        func(c *config) { c.MaxBody = -1 },
		"Config.MaxResponse is -1":                                                    func(c *config) { c.MaxResponse = -1 },
		"Config.MaxConcurrent is -1":                                                  func(c *config) { c.MaxConcurrent = -1 },
		"Config.MaxConcurrent is 10, but the Store's pool has 10 connections": func(c *config) {
			c.Store,
				c.MaxConcurrent = pooled{deduptest.NewStore(), 10}, 10
		},
		`Config.Methods has "post": `:                             func(c *config) { c.Methods = []string{"post"} },
		`Config.Methods has "GET"`:                                func(c *config) { c.Methods = []string{"POST", "GET"} },
		"Config.Headers[0], Set-Cookie, belongs to one client":    func(c *config) { c.Headers = []string{"set-cookie"} },
		"Config.Headers[1], Access-Control-Allow-Origin, belongs": func(c *config) { c.Headers = []string{"X-Ok", "access-control-allow-origin"} },
		"Config.Headers[0], Proxy-Authenticate, belongs":          func(c *config) { c.Headers = []string{"Proxy-Authenticate"} },
		`Config.Headers[0], "", is no name`:                       func(c *config) { c.Headers = []string{""} },
		`Config.Headers[0], "a b", is no name`:                    func(c *config) { c.Headers = []string{"a b"} },
		"Config.Seal and Config.Open: set both or neither":        func(c *config) { c.Seal = func(a, _ []byte) ([]byte, error) { return a, nil } },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := config{
				Name: "api", Store: deduptest.NewStore(), Secrets: [][]byte{secret("a")},
				Principal: httpidem.Anonymous,
			}
			if _, err := httpidem.New(cfg); err != nil {
				t.Fatal(err)
			}
			change(&cfg)
			guard, err := httpidem.New(cfg)
			if guard != nil || err == nil || !strings.HasPrefix(err.Error(), "httpidem: "+want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("New: %v, want %s", err, want)
			}
		})
	}
	_, err := httpidem.New(config{
		Timeout: -1, MaxBody: -1, MaxResponse: -1, MaxConcurrent: -1, Window: 1,
		ClientRetryHorizon: -1,
	})
	for _, field := range []string{
		"Name", "Store", "Secrets", "Principal", "Timeout", "MaxBody", "MaxResponse",
		"MaxConcurrent", "Window", "ClientRetryHorizon",
	} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("New does not name %s: %v", field, err)
		}
	}
}

func TestMisuse(t *testing.T) {
	a := newAPI(t)
	for name, f := range map[string]func(){
		"Handle": func() { a.guard.Handle(nil) },
		"Wrap":   func() { a.guard.Wrap(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s(nil) did not panic", name)
				}
			}()
			f()
		}()
	}
	other := newAPI(t)
	a.want(a.guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := a.guard.Tx(r.Context()); err != nil {
			t.Error(err)
		}
		if _, err := other.guard.Tx(r.Context()); err == nil {
			t.Error("another Guard has the transaction")
		}
	})), request{}, http.StatusOK, false)
}

// Each request calls exactly one hook.
func TestTrace(t *testing.T) {
	var got []string
	a := newAPI(t, func(c *config) {
		hook := func(name string) func(context.Context, httpidem.Event) {
			return func(_ context.Context, e httpidem.Event) {
				if e.Guard != "api" || e.Request.URL.Path != "/orders" || e.Took < 0 {
					t.Errorf("%s: %+v", name, e)
				}
				got = append(got, fmt.Sprint(name, " ", e.Status, " ", e.Reason, " ", e.Err != nil))
			}
		}
		c.Trace = &httpidem.Trace{
			Committed: hook("committed"), Recorded: hook("recorded"), Unstored: hook("unstored"),
			Replayed: hook("replayed"), Refused: hook("refused"),
		}
	})
	a.send(a.create(), request{key: "1"})
	a.send(a.create(), request{key: "1"})
	a.send(a.create(), request{key: "1", body: "x"})
	a.send(a.status(402), request{key: "2"})
	a.send(a.status(402), request{key: "2"})
	a.send(a.status(404), request{key: "3"})
	a.send(a.create(), request{noKey: true})
	a.send(a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error { return errHandler }), request{key: "4"})
	if diff := cmp.Diff([]string{
		"committed 201  false", "replayed 201  false", "refused 422 Mismatch true", "recorded 402  false",
		"replayed 402  false",
		"unstored 404  false", "refused 400 MissingKey true", "refused 500 Failed true",
	}, got); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if log := a.log.String(); strings.Count(log, "\n") != 1 || strings.Contains(log, "key=") {
		t.Errorf("log: %s", log)
	}
}
