package dashboard_test

import (
	"context"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]dashboard.Config{
		"Store":     {Authorize: dashboard.Loopback},
		"Authorize": {Store: dashboardtest.SQLite(t).Operator()},
	} {
		if _, err := dashboard.New(cfg); err == nil || !strings.Contains(err.Error(), "Config."+field+" is required") {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		peer, host string
		header     string
		granted    bool
	}{
		"IPv4":                      {"127.0.0.1:5000", "127.0.0.1:7070", "", true},
		"IPv4, another loopback":    {"127.8.9.1:5000", "127.8.9.1", "", true},
		"IPv6":                      {"[::1]:5000", "[::1]:7070", "", true},
		"mapped":                    {"[::ffff:127.0.0.1]:5000", "localhost:7070", "", true},
		"by name":                   {"127.0.0.1:5000", "LocalHost", "", true},
		"another machine":           {"192.0.2.7:5000", "localhost:7070", "", false},
		"a name that resolves here": {"127.0.0.1:5000", "attacker.example:7070", "", false},
		"a name that begins so":     {"127.0.0.1:5000", "localhost.attacker.example", "", false},
		"no host":                   {"127.0.0.1:5000", "", "", false},
		"no peer":                   {"", "localhost", "", false},
		"X-Forwarded-For":           {"127.0.0.1:5000", "localhost", "X-Forwarded-For", false},
		"X-Forwarded-Host":          {"127.0.0.1:5000", "localhost", "X-Forwarded-Host", false},
		"Forwarded":                 {"127.0.0.1:5000", "localhost", "Forwarded", false},
		"X-Real-IP":                 {"127.0.0.1:5000", "localhost", "X-Real-IP", false},
		"Via":                       {"127.0.0.1:5000", "localhost", "Via", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = tc.peer, tc.host
		if tc.header != "" {
			r.Header.Set(tc.header, "127.0.0.1")
		}
		if _, err := dashboard.Loopback(r, dashboard.View); (err == nil) != tc.granted {
			t.Errorf("%s: %v", what, err)
		}
		r.ProtoMinor = 0
		if _, err := dashboard.Loopback(r, dashboard.View); err == nil {
			t.Errorf("%s: granted to HTTP/1.0, which proxies speak", what)
		}
		r.ProtoMinor = 1
		for _, p := range []dashboard.Permission{dashboard.Payload, dashboard.Act} {
			if _, err := dashboard.Loopback(r, p); err == nil {
				t.Errorf("%s: %s is granted", what, p)
			}
		}
	}
}

func TestWithoutView(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Store: dashboardtest.SQLite(t).Operator(), Authorize: grants(dashboard.Payload, dashboard.Act)})
	for _, path := range []string{"", "letters", "live?page=overview", "static/style.css", "nothing"} {
		s.want(path, http.StatusForbidden, "Forbidden")
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseMismatch})[0]
	const secret, value, button = "corrected", "content-type: application/json", `method="post"`
	for _, tc := range []struct {
		granted          []dashboard.Permission
		payload, buttons bool
	}{
		{[]dashboard.Permission{dashboard.View}, false, false},
		{[]dashboard.Permission{dashboard.View, dashboard.Payload}, true, false},
		{[]dashboard.Permission{dashboard.View, dashboard.Act}, false, true},
	} {
		s := newSite(t, dashboard.Config{Store: db.Operator(), Authorize: grants(tc.granted...)})
		for _, path := range []string{
			"letter?id=" + l.ID.String(), "outbox", "letters", "plan?consumer=billing",
			"explain?id=" + l.ID.String(),
		} {
			body := s.want(path, 200)
			page := strings.HasPrefix(path, "letter?")
			if got := strings.Contains(body, secret) || strings.Contains(body, value) ||
				strings.Contains(body, "&#34;amount&#34;"); got != (tc.payload && (page || path == "outbox")) {
				t.Errorf("%v, %s: payload shown: %v", tc.granted, path, got)
			}
			acts := page || path == "outbox" || strings.HasPrefix(path, "plan")
			if got := strings.Contains(body, button); got != (tc.buttons && acts) {
				t.Errorf("%v, %s: buttons shown: %v", tc.granted, path, got)
			}
		}
	}
}

// Keys that name people are nowhere, but a person who has the key finds it.
func TestHideKeys(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		hide := ops.HideKeys{Secret: []byte("secret")}
		s := newSite(t, dashboard.Config{Store: db.Operator(), HideKeys: hide, Authorize: grants(dashboard.View, dashboard.Act)})
		l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseExhausted})[0]
		key := l.Record.Key.ID
		status, body := s.post("replay", "consumer", "billing", "key", key, "why", "because", "expect", "1")
		wantBody(t, "replay", status, body, 200)
		for _, path := range []string{
			"", "letters", "letter?id=" + l.ID.String(), "explain?id=" + l.ID.String(),
			"actions", "action?id=" + actions(t, db)[0].ID.String(), "outbox",
		} {
			body := s.want(path, 200)
			for _, word := range []string{key, "customer-order", "billing/order-40:paid"} {
				// also as a part of a position, or as a message's ID
				if strings.Contains(body, word) {
					t.Errorf("%s shows %s", path, word)
				}
			}
		}
		s.want("letters", 200, hide.Key(key))
		for _, path := range []string{"letters", "outbox"} { // a form's field would be in the address, and so in logs
			if body := s.want(path, 200); strings.Contains(body, `<label>Key`) {
				t.Errorf("%s has a field for a key", path)
			}
		}
		status, body = s.post("explain", "consumer", "billing", "key", key)
		wantBody(t, "explain", status, body, 200, hide.Key(key), "A redelivery: first")
	})
}

// unprobed is a database that fails when a key is probed.
type unprobed struct{ ops.Store }

func (unprobed) Probe(context.Context, dedup.Record) (ops.Probe, error) {
	return ops.Probe{}, errors.New("connection reset by peer")
}

// Where keys are hidden, they are also not in an error, in its log line, in the record of an action on the outbox, or
// in a position.
func TestHiddenKeysInCorners(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	c := db.Consumer(t, "billing")
	db.Broken.Store(true)
	m := dashboardtest.Message("ann@example.com")
	m.Position = "queue/" + m.ID
	if err := c.Process(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	parked, err := db.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ops.ChangeParked(t.Context(), db.Operator(),
		ops.Request{Kind: ops.Unpark, Who: "ann", Reason: "because", Expect: -1},
		outbox.ParkedFilter{OrderingKey: parked[0].OrderingKey}); err != nil {
		t.Fatal(err)
	}
	byPosition, err := db.Operator().Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "because", Expect: -1,
		Filter: consumer.DeadLetterFilter{Consumer: "billing", Position: m.Position},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := letters(t, db, consumer.DeadLetterFilter{MessageID: m.ID})[0]
	var log strings.Builder
	cfg := dashboard.Config{
		Store: unprobed{db.Operator()}, HideKeys: ops.HideKeys{Secret: []byte("secret")},
		Authorize: grants(dashboard.View),
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
	}
	failing := newSite(t, cfg)
	cfg.Store = db.Operator()
	s := newSite(t, cfg)
	id := l.ID.String()
	for what, body := range map[string]string{
		"an error":    failing.want("letter?id="+id, http.StatusServiceUnavailable, "connection reset"),
		"an action":   s.want("action?id="+actions(t, db)[1].ID.String(), 200, "parked messages of the outbox"),
		"its filter":  s.want("action?id="+byPosition.ID.String(), 200, "position"),
		"a list":      s.want("letters", 200, "queue/"),
		"a letter":    s.want("letter?id="+id, 200, "queue/"),
		"a timeline":  s.want("explain?id="+id, 200, "queue/"),
		"the log":     log.String(),
		"the outbox":  s.want("outbox", 200, "receipts"),
		"the actions": s.want("actions", 200, "unpark"),
	} {
		for _, word := range []string{m.ID, "ann@", "customer-"} {
			if strings.Contains(html.UnescapeString(body), word) {
				t.Errorf("%s shows %s:\n%s", what, word, body)
			}
		}
	}
}
