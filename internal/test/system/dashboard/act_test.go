package dashboard_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// From the dry run to the letters that workers have processed.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		s.want("plan?consumer=billing&cause=exhausted", 200, "3 letters match", `name="expect" value="3"`,
			`name="max_failures" inputmode="numeric" value="`+strconv.Itoa(ops.DefaultMaxFailures)+`"`)
		s.want("plan?consumer=billing&cause=exhausted&max_failures=", 200,
			`name="max_failures" inputmode="numeric" value=""`)
		db.Fixed.Store(true)
		status, body := s.post("replay", "consumer", "billing", "cause", "exhausted", "expect", "3", "why",
			"INC-17 is over")
		wantBody(t, "replay", status, body, 200, "INC-17 is over", "ann", "0 of 3")

		a := replayed(t, db)
		if a.Results[observe.Processed] != 3 || a.Who != "ann" || a.Reason != "INC-17 is over" {
			t.Errorf("action %+v", a)
		}
		s.want("action?id="+a.ID.String(), 200, "3 of 3", "ended")
		s.want("actions", 200, "INC-17 is over")
		s.want("letters?cause=exhausted", 200, "No dead letter matches")
	})
}

// A replay whose letters fail again has ended, but not well.
func TestReplayFails(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		s.post("replay", "consumer", "billing", "cause", "exhausted", "expect", "3", "why", "INC-18")
		if a := replayed(t, db); a.Results[observe.Parked] != 3 {
			t.Errorf("action %+v", a)
		}
		s.want("actions", 200, "INC-18", "3 of 3", "ended, 3 failed")
	})
}

// replayed returns the latest action after a worker has ended it.
func replayed(t *testing.T, db *dashboardtest.DB) ops.Action {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, worker := make(chan error), db.Consumer(t, "billing")
	go func() { ended <- worker.RunReplays(ctx) }()
	a := waitEnded(t, db)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return a
}

func waitEnded(t *testing.T, db *dashboardtest.DB) ops.Action {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 3000 {
		if a := actions(t, db)[0]; !a.Ended.IsZero() {
			return a
		}
		<-ticker.C
	}
	t.Fatal("the action does not end")
	return ops.Action{}
}

// An action that would choose other letters than the dry run is refused.
func TestExpect(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		for _, path := range []string{"replay", "discard"} {
			status, body := s.post(path, "consumer", "billing", "cause", "exhausted", "expect", "2", "why", "because")
			wantBody(t, path, status, body, http.StatusConflict, "another number")
		}
		nothingChanged(t, db)
	})
}

func TestDiscard(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		status, body := s.post("discard", "consumer", "billing", "cause", "panic", "expect", "1", "why", "a test order")
		wantBody(t, "discard", status, body, 200, "a test order", "discarded")
		if n := len(letters(t, db, consumer.DeadLetterFilter{Consumer: "billing"})); n != 7 {
			t.Errorf("%d letters are left, want 7", n)
		}
		status, body = s.post("discard", "why", "everything", "expect", "8")
		if status == 200 {
			t.Errorf("a discard without a filter: %s", body)
		}
		if n := len(letters(t, db, consumer.DeadLetterFilter{})); n != 8 {
			t.Errorf("%d letters are left, want 8", n)
		}
	})
}

// A mismatch is replayed under a key of its own.
func TestReplayUnderNewKey(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseMismatch})[0]
		status, body := s.post("replay", "consumer", "billing", "id", l.ID.String(), "expect", "1", "why",
			"a correction", "new_key", "order-42:corrected")
		wantBody(t, "replay", status, body, 200, "order-42:corrected")
		if a := actions(t, db)[0]; a.Key != "order-42:corrected" || a.Matched != 1 {
			t.Errorf("action %+v", a)
		}
		status, body = s.post("end", "id", actions(t, db)[0].ID.String(), "why", "not yet")
		wantBody(t, "end", status, body, 200, "ended by ann: not yet")
	})
}

func TestOutbox(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		parked, err := db.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 2 {
			t.Fatalf("%d parked, %v; want 2", len(parked), err)
		}
		stats := func() outbox.Stats {
			t.Helper()
			stats, err := db.Outbox().Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats
		}
		before := stats().Pending
		status, body := s.post("outbox", "do", "discard", "all", "1", "why", "everything", "expect", "2", "until",
			"2100-01-01")
		wantBody(t, "discard without a filter", status, body, 400, "choose a topic")
		for _, fields := range [][]string{{"until", "2100-01-01"}, {"expect", "1"}} {
			status, body = s.post("outbox", append(fields, "do", "discard", "all", "1", "why", "everything", "topic",
				"receipts")...)
			wantBody(t, "discard without a dry run", status, body, 400, "begin on the page of the dry run")
		}
		status, body = s.post("outbox", "do", "unpark", "why", "nothing is ticked")
		wantBody(t, "unpark", status, body, 400, "no message is chosen")
		status, body = s.post("outbox", "do", "unpark", "why", "the limit is raised", "seq", numeral(parked[0].Seq))
		wantBody(t, "unpark", status, body, 200, "unpark", "the limit is raised")
		if got := stats(); got.Parked != 1 || got.Pending != before+1 {
			t.Errorf("after unpark: %+v", got)
		}
		status, body = s.post("outbox", append(form(s.want("parked?topic=receipts", 200, "1 parked message matches")),
			"do", "discard", "why", "nobody needs it")...)
		wantBody(t, "discard", status, body, 200, "discard_outbox")
		if got := stats(); got.Parked != 0 || got.Pending != before+1 {
			t.Errorf("after discard: %+v", got)
		}
		if n := len(actions(t, db)); n != 2 {
			t.Errorf("%d actions, want 2", n)
		}
	})
}

// A list shows what was parked when it was loaded. What is not parked any more cannot be changed, and the answer says
// so.
func TestOutdatedList(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		parked, err := db.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 2 {
			t.Fatalf("%d parked, %v; want 2", len(parked), err)
		}
		if _, err := db.Outbox().Unpark(t.Context(), parked[0].Seq); err != nil {
			t.Fatal(err)
		}
		status, body := s.post("outbox", "do", "discard", "why", "because", "seq", numeral(parked[0].Seq), "seq",
			numeral(parked[1].Seq))
		wantBody(t, "discard", status, body, http.StatusConflict, "1 of the 2 chosen messages were changed")
		status, body = s.post("outbox", "do", "unpark", "all", "1", "topic", "receipts", "until", "2100-01-01", "why",
			"because")
		wantBody(t, "unpark", status, body, http.StatusConflict, "no parked message matches")
	})
}

// form returns the hidden fields of the first form that acts on a page.
func form(page string) (fields []string) {
	_, page, _ = strings.Cut(page, `method="post"`)
	page, _, _ = strings.Cut(page, "</form>")
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return fields
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// What arrives between a dry run and its form is not changed: it was not shown.
func TestArrivals(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		replay := form(s.want("plan?consumer=billing&cause=exhausted", 200, "3 letters match"))
		unpark := form(s.want("parked", 200, "2 parked messages match"))
		for _, late := range []string{
			`INSERT INTO outbox_parked (seq, shard, id, topic, key, payload, enqueued_at, attempts, error, parked_at)
SELECT seq + 1000, shard, id || ' later', topic, NULL, payload, enqueued_at, attempts, error, ` + db.Later("parked_at") + ` FROM outbox_parked`,
			`INSERT INTO dead_letters (id, key, consumer, message_id, window_seconds, message_time, cause, error, topic, position, payload, headers, attempts, times, first_parked, last_parked)
SELECT key, key, consumer, message_id || ' later', window_seconds, message_time, cause, error, topic, position, payload, headers, attempts, times, ` +
				db.Later("first_parked") + `, last_parked FROM dead_letters WHERE cause = 'exhausted'`,
		} {
			if _, err := db.SQL.ExecContext(t.Context(), late); err != nil {
				t.Fatal(err)
			}
		}
		status, body := s.post("replay", append(replay, "why", "INC-17 is over")...)
		wantBody(t, "replay", status, body, 200, "0 of 3")
		status, body = s.post("outbox", append(unpark, "do", "unpark", "why", "the limit is raised")...)
		wantBody(t, "unpark", status, body, 200, "the limit is raised")
		left, err := db.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(left) != 2 || !strings.HasSuffix(left[0].ID, " later") || !strings.HasSuffix(left[1].ID,
			" later") {
			t.Errorf("parked: %+v, %v; want the two that came later", left, err)
		}
	})
}

// forms are all actions.
func forms(l consumer.DeadLetter, seq int64) map[string]url.Values {
	with := func(fields ...string) url.Values {
		v := url.Values{"why": {"because"}}
		for i := 0; i < len(fields); i += 2 {
			v.Set(fields[i], fields[i+1])
		}
		return v
	}
	return map[string]url.Values{
		"replay":  with("consumer", "billing", "id", l.ID.String(), "expect", "1"),
		"discard": with("consumer", "billing", "id", l.ID.String(), "expect", "1"),
		"outbox":  with("do", "discard", "seq", numeral(seq)),
	}
}

func TestRefusedActionsChangeNothing(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		l := letters(t, db, consumer.DeadLetterFilter{Cause: observe.CauseExhausted})[0]
		parked, err := db.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil {
			t.Fatal(err)
		}
		reader := newSite(t, dashboard.Config{Store: db.Operator(), Authorize: grants(dashboard.View, dashboard.Payload)})
		actor := newSite(t, dashboard.Config{Store: db.Operator()})
		nobody := newSite(t, dashboard.Config{Store: db.Operator(), Authorize: func(*http.Request, dashboard.Permission) (string, error) { return "", nil }})
		for path, form := range forms(l, parked[0].Seq) {
			for what, answer := range map[string]func() (int, string){
				"without act":    func() (int, string) { return reader.do("POST", path, form, nil) },
				"without a name": func() (int, string) { return nobody.do("POST", path, form, nil) },
				"a foreign site": func() (int, string) {
					return actor.do("POST", path, form, http.Header{"Sec-Fetch-Site": {"cross-site"}})
				},
				"a sibling site": func() (int, string) {
					return actor.do("POST", path, form, http.Header{"Sec-Fetch-Site": {"same-site"}})
				},
				"a foreign origin": func() (int, string) {
					return actor.do("POST", path, form, http.Header{"Origin": {"https://attacker.example"}})
				},
			} {
				if status, body := answer(); status != http.StatusForbidden {
					t.Errorf("%s, %s: status %d\n%s", path, what, status, body)
				}
			}
			noReason := url.Values{}
			for name, v := range form {
				if name != "why" {
					noReason[name] = v
				}
			}
			if status, _ := actor.do("POST", path, noReason, nil); status != http.StatusBadRequest {
				t.Errorf("%s without a reason: status %d", path, status)
			}
			if status, _ := actor.do("GET", path+"?"+form.Encode(), nil, nil); path != "outbox" &&
				status != http.StatusMethodNotAllowed {
				t.Errorf("GET %s: status %d", path, status)
			}
		}
		nothingChanged(t, db)
	})
}

// nothingChanged fails if somebody has acted on a seeded database.
func nothingChanged(t *testing.T, db *dashboardtest.DB) {
	t.Helper()
	if n := len(letters(t, db, consumer.DeadLetterFilter{})); n != 9 {
		t.Errorf("%d letters are left, want 9", n)
	}
	if a := actions(t, db); len(a) != 0 {
		t.Errorf("actions %+v", a)
	}
	stats, err := db.Outbox().Stats(t.Context())
	if err != nil || stats.Parked != 2 {
		t.Errorf("%d parked, %v; want 2", stats.Parked, err)
	}
}
