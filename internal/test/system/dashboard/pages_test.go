package dashboard_test

import (
	"context"
	"database/sql"
	"html"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

func TestPages(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator(), Title: "production"})
		s.want("", 200, "production", "Needs attention", "billing: 8 dead letters", "mailer: 1 dead letters",
			`<a href="outbox?topic=receipts">`, "docs/runbook/Parked.md")
		s.want("consumers", 200, "billing", "exhausted", "mismatch")
		s.want("windows", 200, "billing", "none: no key was deleted yet")
		s.want("letters", 200, "order-51:paid", "order-54:paid", "mismatch", "502 Bad Gateway")
		s.want("outbox", 200, "MESSAGE_TOO_LARGE", "customer-order-40:paid", "Pending")
		s.want("actions", 200, "Nobody has acted yet")
		s.want("explain", 200, "rolled back")
		s.want("nothing", 404)
		s.want("letter?id=0", 404, "no dead letter")
		s.want("action?id=0", 404, "no such action")
	})
}

// Counting stops at a limit, and the pages say so.
func TestCappedCounts(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	db.Fill(t, 0, 13_000) // 10,400 of billing, 1,950 of mailer
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	s.want("", 200, "billing: more than 10,000 dead letters", "mailer: 1,950 dead letters", "10,000+", "12,000&#43;")
	s.want("consumers", 200, "+</td>")
	s.want("plan?consumer=billing", 200, "More than 1,000 letters match")
}

func TestFilters(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		for query, rows := range map[string]int{
			"":                    9,
			"consumer=mailer":     1,
			"cause=mismatch":      2,
			"cause=exhausted":     3,
			"topic=orders":        8,
			"key=order-42%3Apaid": 2,
			"error=Bad+Gateway":   3,
			"error=bad+gateway":   0,
			"since=2020-01-01":    9,
			"until=2020-01-01":    0,
			"tenant=nobody":       0,
			"consumer=billing&cause=panic&topic=orders": 1,
		} {
			body := s.want("letters?"+query, 200)
			if n := strings.Count(body, `<a href="letter?id=`); n != rows {
				t.Errorf("%q: %d letters, want %d", query, n, rows)
			}
		}
		s.want("letters?since=yesterday", 400, "want a time")
		s.want("letters?after=x", 400, "follow a link")
	})
}

func TestLettersPages(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	c := db.Consumer(t, "billing")
	db.Broken.Store(true)
	for i := range 120 {
		if err := c.Process(t.Context(), dashboardtest.Message(string(rune('a'+i%26))+strings.Repeat("x",
			i))); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	seen, path := map[string]bool{}, "letters?consumer=billing"
	pages := 0
	for path != "" {
		body := s.want(path, 200)
		pages++
		for _, part := range strings.Split(body, `<a href="letter?id=`)[1:] {
			seen[part[:32]] = true
		}
		path = ""
		if _, rest, found := strings.Cut(body, `<a class="button" href="`); found {
			path, _, _ = strings.Cut(rest, `"`)
			path = html.UnescapeString(path)
		}
	}
	if len(seen) != 120 || pages != 3 {
		t.Errorf("%d letters on %d pages, want 120 on 3", len(seen), pages)
	}
}

func TestExplain(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		s.want("explain?consumer=billing&key=order-42%3Apaid", 200,
			"A redelivery: duplicate; of the letter's content: mismatch", "verdict-mismatch", "committed, fingerprint",
			"parked: mismatch")
		s.want("explain?consumer=billing&key=order-99%3Apaid", 200, "A redelivery: first",
			"No dead letters with this key")
		s.want("explain?consumer=billing&key=order-51%3Apaid", 200, "A redelivery: first", "parked: exhausted")
		s.want("explain?consumer=billing&key=k&time=noon", 400)
		mismatch := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseMismatch})[0]
		s.want("explain?id="+mismatch.ID.String(), 200, "A redelivery: mismatch")
	})
}

// Another message has claimed an alias of a letter since it was parked: a replay needs “as new”, whatever the letter
// was parked for.
func TestLetterWithAKnownAlias(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	c := db.Consumer(t, "billing")
	for _, id := range []string{"first", "second"} {
		db.Broken.Store(id == "first")
		m := dashboardtest.Message(id)
		m.Aliases = []string{"object:cs_1"}
		if err := c.Process(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	letter := letters(t, db, consumer.DeadLetterFilter{MessageID: "first"})[0]
	s.want("letter?id="+letter.ID.String(), 200, "A redelivery: known_content", "claimed an alias", "Run it as new",
		`txonce-aliases: [&#34;object:cs_1&#34;]`)
}

// A message whose letter was discarded is a duplicate, and was not processed.
func TestExplainDiscarded(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		status, body := s.post("discard", "consumer", "billing", "cause", "panic", "expect", "1", "why", "a test order")
		wantBody(t, "discard", status, body, 200, "a test order")
		body = s.want("explain?consumer=billing&key=order-54%3Apaid", 200, "A redelivery: duplicate",
			"The message was not processed", "discarded by", ": a test order")
		if strings.Contains(body, "The message was processed") {
			t.Error("a discarded message is called processed")
		}
	})
}

func TestLetter(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		mismatch := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseMismatch})[0]
		s.want("letter?id="+mismatch.ID.String(), 200, "A redelivery: mismatch", "&#34;amount&#34;: 995", "corrected",
			"<del>−", "<ins>+",
			`value="order-42:paid#2"`, "content-type: application/json", mismatch.Message.Position)
		page := s.want("letter?id="+mismatch.ID.String(), 200)
		if payload, replay := strings.Index(page, "<h2>Payload</h2>"),
			strings.Index(page, `action="replay"`); payload < 0 || replay < payload {
			t.Error("the forms stand above the payload, which decides about them")
		}
		nokey := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseNoKey})[0]
		s.want("letter?id="+nokey.ID.String(), 200, "A message without a key", "Give it one")
	})
}

// What a message contains is shown as text.
func TestHostileContentIsEscaped(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator(), Title: dashboardtest.Hostile})
		hostile := letters(t, db, consumer.DeadLetterFilter{Consumer: "mailer"})[0]
		for _, path := range []string{
			"", "consumers", "windows", "letters", "letter?id=" + hostile.ID.String(),
			"explain?id=" + hostile.ID.String(), "plan?consumer=mailer", "outbox",
		} {
			body := s.want(path, 200)
			for _, raw := range []string{"<script>document", "<img src=http", "mails<b>"} {
				if strings.Contains(body, raw) {
					t.Errorf("%s: %s is not escaped", path, raw)
				}
			}
		}
		s.want("letter?id="+hostile.ID.String(), 200, html.EscapeString("<script>document"))
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Store: dashboardtest.SQLite(t).Operator()})
	for _, path := range []string{"", "letters", "nothing", "static/style.css", "static/live.js", "letter?id=0"} {
		res, err := s.Client().Get(s.URL + "/txonce/" + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; " +
				"frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if cache := res.Header.Get("Cache-Control"); cache != "no-store" && res.StatusCode == http.StatusOK &&
			!strings.HasPrefix(path, "static") {
			t.Errorf("%s: Cache-Control is %q", path, cache)
		}
	}
}

// The outbox messages of a key are searched if somebody asks, and not else.
func TestExplainOutbox(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		c, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "orders", Store: db.Store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
			Handle: func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				return db.Enqueue(ctx, tx, outbox.Message{Topic: "receipts", Payload: m.Payload},
					outbox.Message{Topic: "mails", Payload: m.Payload})
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Process(t.Context(), dashboardtest.Message("ann@example.com")); err != nil {
			t.Fatal(err)
		}
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		const path = "explain?consumer=orders&key=ann%40example.com"
		body := s.want(path, 200, "duplicate", `<a class="button" href="explain?consumer=orders&amp;key=ann%40example.com&amp;outbox=1`)
		if strings.Contains(body, "2 pending") {
			t.Error("the outbox is searched although nobody has asked")
		}
		s.want(path+"&outbox=1", 200, "2 pending, 0 parked")
		s.want("explain?consumer=billing&key=order-40%3Apaid&outbox=1", 200,
			"0 pending, 0 parked: all with IDs derived from this key are confirmed")
		s.want("explain?consumer=billing&key=nothing&outbox=1", 200, "0 pending, 0 parked</p>")

		hidden := newSite(t, dashboard.Config{Store: db.Operator(), HideKeys: ops.HideKeys{Secret: []byte("secret")}})
		status, body := hidden.post("explain", "consumer", "orders", "key", "ann@example.com", "outbox", "1")
		wantBody(t, "hidden", status, body, 200, "2 pending, 0 parked")
		status, plain := hidden.post("explain", "consumer", "orders", "key", "ann@example.com")
		wantBody(t, "hidden", status, plain, 200, "duplicate")
		if strings.Contains(body+plain, "ann@") || strings.Contains(body+plain, "ann%40") {
			t.Error("the key is on the page")
		}
	})
}

// A search that stops says until where it has come, and goes on from there.
func TestLimitedSearch(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	db.Fill(t, 0, 14_000) // 11,200 of billing
	if _, err := db.SQL.ExecContext(t.Context(), `UPDATE dead_letters SET topic = 'old' WHERE message_id IN ('order-5', 'order-6')`); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	path := "letters?consumer=billing&topic=old"
	body := s.want(path, 200, "No dead letter matches among those that were searched", "Older ones may match, too")
	_, next, _ := strings.Cut(body, `<a class="button" href="`)
	next, _, _ = strings.Cut(next, `"`)
	body = s.want(html.UnescapeString(next), 200, "order-5<", "order-6<")
	if strings.Contains(body, "Search older") {
		t.Error("the last page has a next one")
	}
	s.want("plan?consumer=billing&topic=old", 200, "At least 0 letters match", "older ones may match, too")
}
