package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/outbox/driver"
)

// watch opens a live connection and returns its lines.
func watch(t *testing.T, base, page string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"live?page="+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return res, lines
}

func waitLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "data: ") && line != "retry: 2000" {
			t.Errorf("line %q is of no event", line)
		}
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no line contains %q: %v", text, lines.Err())
}

func TestLive(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		res, lines := watch(t, s.URL+"/txonce/", "overview")
		if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type is %q", got)
		}
		waitLine(t, lines, "billing: 8 dead letters")
		status, body := s.post("discard", "consumer", "billing", "cause", "panic", "expect", "1", "why", "a test order")
		wantBody(t, "discard", status, body, 200)
		waitLine(t, lines, "billing: 7 dead letters")
		s.want("live?page=letters", http.StatusNotFound)
	})
}

// counting counts how often the database is asked, and may be away.
type counting struct {
	ops.Store
	asked atomic.Int64
	away  atomic.Bool
}

func (c *counting) Status(ctx context.Context) (ops.Status, error) {
	c.asked.Add(1)
	if c.away.Load() {
		return ops.Status{}, errors.New("connection refused")
	}
	return c.Store.Status(ctx)
}

// All viewers share a snapshot, and there are not too many.
func TestViewersShareASnapshot(t *testing.T) {
	t.Parallel()
	db := &counting{Store: dashboardtest.SQLite(t).Operator()}
	s := newSite(t, dashboard.Config{Store: db})
	for range 100 {
		res, lines := watch(t, s.URL+"/txonce/", "overview")
		if res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
		waitLine(t, lines, "Nothing needs attention")
	}
	if res, _ := watch(t, s.URL+"/txonce/", "overview"); res.StatusCode != http.StatusServiceUnavailable ||
		res.Header.Get("Retry-After") == "" {
		t.Errorf("viewer 101: %s", res.Status)
	}
	s.want("", 200)
	if n := db.asked.Load(); n > 50 {
		t.Errorf("100 viewers asked the database %d times", n)
	}
}

// A dashboard whose database is away says so, and shows what it knew.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	seeded := dashboardtest.SQLite(t)
	seeded.Seed(t)
	db := &counting{Store: seeded.Operator()}
	s := newSite(t, dashboard.Config{Store: db})
	_, lines := watch(t, s.URL+"/txonce/", "overview")
	waitLine(t, lines, "billing: 8 dead letters")
	db.away.Store(true)
	waitLine(t, lines, "connection refused")
	waitLine(t, lines, "billing: 8 dead letters")
	db.away.Store(false)
	for range 3 { // events
		waitLine(t, lines, "retry")
	}
	db.away.Store(true)
	fresh := newSite(t, dashboard.Config{Store: db})
	fresh.want("", http.StatusServiceUnavailable, "connection refused")
}

// aging has a transaction that has been open for long.
type aging struct{ ops.Store }

func (a aging) Status(ctx context.Context) (ops.Status, error) {
	s, err := a.Store.Status(ctx)
	s.Old = []ops.Holder{{PID: 4711, Since: s.Now.Add(-3 * time.Minute), Age: 3 * time.Minute, State: "idle in transaction", Client: "10.0.0.5 billing"}}
	return s, err
}

// A transaction that keeps its keys for long leads to the worker that may be frozen.
func TestOldTransaction(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Store: aging{dashboardtest.SQLite(t).Operator()}})
	s.want("", 200, "open for 3 min", "process 4711", "idle in transaction, client 10.0.0.5 billing",
		"docs/runbook/InFlightWait.md")
}

// Every page that shows a snapshot says when it is old. Only the overview said so: the others looked healthy for ever.
func TestDatabaseAwayOnEachPage(t *testing.T) {
	t.Parallel()
	seeded := dashboardtest.SQLite(t)
	seeded.Seed(t)
	a, err := seeded.Operator().Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-17", Filter: consumer.DeadLetterFilter{Consumer: "billing"},
		Expect: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	db := &counting{Store: seeded.Operator()}
	s := newSite(t, dashboard.Config{Store: db})
	s.want("", 200, "billing: 8 dead letters")
	db.away.Store(true)
	const notice = "The state of the database could not be read for"
	for _, page := range []string{"outbox", "action&id=" + a.ID.String()} {
		_, lines := watch(t, s.URL+"/txonce/", page)
		waitLine(t, lines, notice)
	}
	s.want("consumers", 200, notice, "exhausted")
	s.want("windows", 200, notice, "billing")
	db.away.Store(false)
	_, lines := watch(t, s.URL+"/txonce/", "overview")
	for range 3 { // events
		waitLine(t, lines, "retry")
	}
	if body := s.want("windows", 200, "billing"); strings.Contains(body, notice) {
		t.Error("the notice stays")
	}
}

// The log and the page name a table that is missing, and what makes it.
func TestMissingTable(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		if _, err := db.SQL.ExecContext(t.Context(), `DROP TABLE operator_actions`); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := newSite(t, dashboard.Config{Store: db.Operator(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.want("", http.StatusServiceUnavailable, "operator_actions", "txonce migrate up")
		s.Close() // nothing is logged any more
		line, _, _ := strings.Cut(log.String(), "\n")
		for _, text := range []string{
			"the state of the database cannot be read", "operator_actions",
			"txonce migrate up",
		} {
			if !strings.Contains(line, text) {
				t.Errorf("%q is missing in %s", text, line)
			}
		}
	})
}

// failingTopic is a database whose outbox has a topic that failed with this error.
type failingTopic struct {
	ops.Store
	error string
}

func (f failingTopic) Status(ctx context.Context) (ops.Status, error) {
	s, err := f.Store.Status(ctx)
	s.Outbox.Now = s.Now
	driver.Count(&s.Outbox, "orders", driver.StatePending, 1, s.Now, 1, f.error)
	return s, err
}

// A carriage return ends a line of an event stream, and two of them end the event: an error that has some must not cut
// the page.
func TestCarriageReturnsInEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Store: failingTopic{dashboardtest.SQLite(t).Operator(), "refused\r\rdata: forged\r\nthe end"}})
	res, _ := watch(t, s.URL+"/txonce/", "outbox")
	reader := bufio.NewReader(res.Body)
	for {
		line, err := reader.ReadString('\n')
		if err != nil || strings.Contains(line, "\r") {
			t.Fatalf("line %q: %v", line, err)
		}
		if strings.Contains(line, "the end") {
			return
		}
	}
}

// HEAD asks for the headers, and must not occupy a place for a viewer.
func TestHeadOfLive(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Store: dashboardtest.SQLite(t).Operator()})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // less than a live connection lasts
	defer cancel()
	for range 2 { // on one connection, so that the second waits for the first handler
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, s.URL+"/txonce/live?page=overview", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Error(res.Status)
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dashboard.New(dashboard.Config{
		Store: dashboardtest.SQLite(t).Operator(), Authorize: dashboard.Loopback,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- dashboard.Serve(ctx, l, d) }()
	res, lines := watch(t, "http://"+l.Addr().String()+"/", "overview")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	waitLine(t, lines, "Nothing needs attention")
	stop()
	if err := <-ended; err != nil { // although somebody watches
		t.Error(err)
	}
	d.Close() // a second time
	if err := dashboard.Serve(t.Context(), l, d); err == nil {
		t.Error("it serves on a closed listener")
	}
}
