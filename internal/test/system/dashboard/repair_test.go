package dashboard_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
)

// From the letter to what the handler of a worker gets.
func TestRepair(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CausePanic})[0]
		id := l.ID.String()
		s.want("letter?id="+id, 200, `<a href="repair?id=`+id)
		s.want("repair?id="+id, 200, "<textarea", "order-54:paid", "keeps its key")
		repaired := "{\"order\":\"order-54:paid\",\r\n\"amount\":1,\"currency\":\"EUR\"}"
		status, body := s.post("repair", "id", id, "payload", repaired)
		wantBody(t, "compare", status, body, 200, `<del>`, `<ins>`, "1250", "Nothing was changed yet",
			"A worker runs the handler with the new payload")
		nothingChanged(t, db)
		status, body = s.post("repaired", append(form(body), "why", "the amount was wrong")...)
		wantBody(t, "repair", status, body, 200, "repair", "the amount was wrong", "0 of 1", "End the repair")

		var got string
		worker, err := consumer.New(consumer.Config[*sql.Tx]{
			Name: "billing", Store: db.Store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
			Handle: func(_ context.Context, _ *sql.Tx,
				m *consumer.Message,
			) error {
				got = string(m.Payload)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer worker.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error)
		go func() { ended <- worker.RunReplays(ctx) }()
		a := waitEnded(t, db)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := strings.ReplaceAll(repaired, "\r\n", "\n"); got != want || a.Kind != ops.Repair || a.Who != "ann" ||
			a.Results[observe.Processed] != 1 {
			t.Errorf("the handler got %q, want %q; action %+v", got, want, a)
		}
	})
}

// A form sends all newlines as CRLF, and text only. What it would change is edited as base64.
func TestRepairKeepsBytes(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	c := db.Consumer(t, "billing")
	db.Broken.Store(true)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	encode := base64.StdEncoding.EncodeToString
	for name, p := range map[string]struct {
		encoded             bool
		payload, sent, want string
	}{
		"lf":       {false, "\n a\nb", "\r\n a\r\nc", "\n a\nc"},
		"crlf":     {false, "a\r\nb", "a\r\nc", "a\r\nc"},
		"both":     {true, "a\r\nb\nc", encode([]byte("a\r\nb\nd")), "a\r\nb\nd"},
		"cr":       {true, "a\rb", encode([]byte("a\rc")), "a\rc"},
		"bytes":    {true, "\x00\xff", encode([]byte("\x00\xfe")), "\x00\xfe"},
		"empty":    {false, "a", "", ""},
		"textarea": {false, "</textarea><script>", "</textarea>", "</textarea>"},
	} {
		m := dashboardtest.Message(name)
		m.Payload = []byte(p.payload)
		if err := c.Process(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		id := letters(t, db, consumer.DeadLetterFilter{MessageID: name})[0].ID.String()
		_, body := s.get("repair?id=" + id)
		if encoded := strings.Contains(body, "Payload as base64"); encoded != p.encoded ||
			strings.Contains(body, "<script>") {
			t.Errorf("%s: base64: %v", name, encoded)
		}
		status, body := s.post("repair", "id", id, "payload", p.sent)
		wantBody(t, name, status, body, 200)
		fields := form(body)
		if i := slices.Index(fields, "payload"); i < 0 || fields[i+1] != encode([]byte(p.want)) {
			t.Errorf("%s: %q, want %q", name, fields, encode([]byte(p.want)))
		}
	}
	id := letters(t, db, consumer.DeadLetterFilter{MessageID: "lf"})[0].ID.String()
	for what, payload := range map[string]string{"not changed": "\r\n a\r\nb", "more than": strings.Repeat("x",
		48_001)} {
		status, body := s.post("repair", "id", id, "payload", payload)
		wantBody(t, what, status, body, 400, what)
	}
	status, body := s.post("repaired", "id", id, "payload", encode([]byte("x")), "sum", "of another payload", "why",
		"because")
	wantBody(t, "another payload", status, body, http.StatusConflict, "another payload")
	status, body = s.post("repaired", "id", strings.Repeat("1", 32), "payload", "", "sum", "", "why", "because")
	wantBody(t, "a letter that is gone", status, body, http.StatusConflict, "replayed or discarded")
	if a := actions(t, db); len(a) != 0 {
		t.Errorf("actions %+v", a)
	}
}

// A repair takes both permissions, a reason, and a form of the dashboard.
func TestRepairRefused(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseExhausted})[0]
		actor := newSite(t, dashboard.Config{Store: db.Operator()})
		_, body := actor.post("repair", "id", l.ID.String(), "payload", "repaired")
		fields := url.Values{"why": {"because"}}
		for pair := range slices.Chunk(form(body), 2) {
			fields.Set(pair[0], pair[1])
		}
		for what, granted := range map[string][]dashboard.Permission{
			"may not act": {dashboard.View, dashboard.Payload}, "may not see payloads": {dashboard.View, dashboard.Act},
		} {
			s := newSite(t, dashboard.Config{Store: db.Operator(), Authorize: grants(granted...)})
			_, page := s.get("letter?id=" + l.ID.String())
			if strings.Contains(page, "repair?id=") {
				t.Errorf("%s: the letter has a link to its repair", what)
			}
			for _, path := range []string{"repair", "repaired"} {
				if status, answer := s.do("POST", path, fields, nil); status != http.StatusForbidden ||
					strings.Contains(answer, "amount") {
					t.Errorf("%s, %s: %d\n%s", what, path, status, answer)
				}
			}
			if status, answer := s.get("repair?id=" + l.ID.String()); status != http.StatusForbidden ||
				strings.Contains(answer, "amount") {
				t.Errorf("%s: %d\n%s", what, status, answer)
			}
		}
		for _, path := range []string{"repair", "repaired"} {
			if status, _ := actor.do("POST", path, fields,
				http.Header{"Sec-Fetch-Site": {"cross-site"}}); status != http.StatusForbidden {
				t.Errorf("%s from another site: %d", path, status)
			}
		}
		fields.Set("why", " ")
		if status, answer := actor.do("POST", "repaired", fields, nil); status != http.StatusBadRequest {
			t.Errorf("without a reason: %d\n%s", status, answer)
		}
		nothingChanged(t, db)
	})
}
