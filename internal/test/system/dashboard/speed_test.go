package dashboard_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
)

// BenchmarkPages measures each page and action with a million pending messages and 100,000 dead letters. Each time is
// that of a new Dashboard, so it contains the snapshot that viewers otherwise share for two seconds.
//
//	go test -run '^$' -bench Pages -benchtime 5x ./adapters/dashboard
func BenchmarkPages(b *testing.B) {
	for _, db := range []struct {
		name  string
		open  func(testing.TB) *dashboardtest.DB
		store func(testing.TB, *dashboardtest.DB) ops.Store
	}{
		{"pgxstore", dashboardtest.Postgres, pgxOperator},
		{"PostgreSQL", dashboardtest.Postgres, operator},
		{"MariaDB", dashboardtest.MySQL, operator},
		{"SQLite", dashboardtest.SQLite, operator},
	} {
		b.Run(db.name, func(b *testing.B) {
			filled := db.open(b)
			filled.Fill(b, 1_000_000, 100_000)
			store := db.store(b, filled)
			for _, p := range slow(b, store) {
				b.Run(p.name, func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						d, err := dashboard.New(dashboard.Config{
							Store: store, Activity: filled.Activity(), Authorize: grants(dashboard.View,
								dashboard.Payload, dashboard.Act), Logger: slog.New(slog.DiscardHandler),
						})
						if err != nil {
							b.Fatal(err)
						}
						r := p.request(b)
						w := httptest.NewRecorder()
						b.StartTimer()
						d.ServeHTTP(w, r)
						if w.Code != http.StatusOK && w.Code != http.StatusSeeOther {
							b.Fatalf("%d: %s", w.Code, w.Body)
						}
					}
				})
			}
		})
	}
}

func operator(_ testing.TB, db *dashboardtest.DB) ops.Store { return db.Operator() }

func pgxOperator(t testing.TB, db *dashboardtest.DB) ops.Store {
	pool, err := pgxpool.New(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return store.Operator()
}

// asked is a request for a page or an action.
type asked struct {
	name    string
	request func(testing.TB) *http.Request
}

// slow are the requests that BenchmarkPages measures.
func slow(t testing.TB, store ops.Store) (list []asked) {
	found, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{
		Consumer: "billing",
		Cause:    observe.CauseExhausted, Limit: 1,
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d letters, %v", len(found), err)
	}
	waiting, err := store.Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-17",
		Filter: consumer.DeadLetterFilter{Consumer: "mailer"}, Expect: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(when, path string) {
		list = append(list, asked{"GET " + path + when, func(t testing.TB) *http.Request {
			return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+path, nil)
		}})
	}
	for _, path := range []string{
		"", "consumers", "windows", "actions", "action?id=" + waiting.ID.String(), "outbox", "outbox?topic=mails",
		"outbox?error=nothing",
		"letters", "letters?consumer=billing", "letters?cause=undecodable", "letters?key=order-50007",
		"letters?consumer=billing&key=order-50007",
		"letters?topic=nothing", "letters?error=nothing", "letter?id=" + found[0].ID.String(),
		"explain?consumer=billing&key=order-50007",
		"plan?consumer=billing&cause=undecodable", "plan?consumer=billing",
		"plan?consumer=billing&error=nothing", "parked?topic=charges",
	} {
		get("", path)
	}
	seq := 10_000_000
	post := func(name, path string, fields func() []string) {
		list = append(list, asked{"POST " + name, func(t testing.TB) *http.Request {
			form := url.Values{"why": {"INC-18"}}
			for pair := range slices.Chunk(fields(), 2) {
				form.Set(pair[0], pair[1])
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+path,
				strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return r
		}})
	}
	always := func(fields ...string) func() []string { // and no letter of billing is marked
		return func() []string {
			open, err := store.Actions(t.Context(), ops.ActionFilter{Consumer: "billing", Open: true})
			for _, a := range open {
				if err == nil {
					_, err = store.End(t.Context(), a.ID, "for the next one")
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			return fields
		}
	}
	post("unpark one", "outbox", func() []string { seq++; return []string{"do", "unpark", "seq", strconv.Itoa(seq)} })
	post("replay 100", "replay", always("consumer", "billing", "cause", "undecodable", "until", "2100-01-01"))
	post("replay 68,000", "replay", always("consumer", "billing", "cause", "exhausted", "until", "2100-01-01"))
	get(" after large replays", "actions")
	return list
}
