package browser_test

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

//go:embed testdata/axe.min.js
var axe string

// patient is how long a page may take on a busy machine.
const patient = 2 * time.Minute

// newBrowser starts a Chromium for one test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; install it with: apt-get install -y --no-install-recommends chromium", err)
	}
	ctx, stop := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.WSURLReadTimeout(patient)))
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is a tab of a browser.
type tab struct {
	*complaints
	t   *testing.T
	ctx context.Context
}

// newTab opens a tab of a browser, and records what goes wrong in it. own is the prefix of the addresses that may be
// requested.
func newTab(t *testing.T, browser context.Context, own string) tab {
	t.Helper()
	ctx, closed := chromedp.NewContext(browser)
	t.Cleanup(closed)
	ctx, cancel := context.WithTimeout(ctx, patient)
	t.Cleanup(cancel)
	tb := tab{&complaints{own: own}, t, ctx}
	if err := chromedp.Listen(ctx, tb.listen); err != nil {
		t.Fatal(err)
	}
	call(tb, network.Enable, network.EnableParams{})
	call(tb, log.Enable, cdp.Empty{})
	return tb
}

func call[P, R any](tb tab, command cdp.Command[P, R], params P) {
	tb.t.Helper()
	if _, err := chromedp.Call(tb.ctx, command, params); err != nil {
		tb.t.Fatalf("%s: %v", command.Method, err)
	}
}

// do runs steps one after the other.
func (tb tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, steps...); err != nil {
		tb.t.Fatal(err)
	}
}

func run[T any](tb tab, a chromedp.Action[T]) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, a)
	if err != nil {
		tb.t.Fatal(err)
	}
	return v
}

const mainPart = chromedp.CSS("#main")

// open loads a page.
func (tb tab) open(address string) {
	tb.t.Helper()
	tb.do(chromedp.Navigate(address), chromedp.WaitReady(mainPart))
}

// complaints are requests to other sites, and whatever the browser logs: violations of the Content-Security-Policy,
// errors of scripts.
type complaints struct {
	own  string // prefix of the addresses that may be requested
	mu   sync.Mutex
	list []string
}

func (c *complaints) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, c.own) && e.Request.URL != "about:blank" {
			text = "request of " + e.Request.URL
		}
	case *log.EventEntryAdded:
		if !(string(e.Entry.Source) == "network" && strings.Contains(e.Entry.Text, "status of 4")) {
			// a page that is refused on purpose
			text = fmt.Sprintf("log: %s: %s", e.Entry.Source, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
	}
	if text == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, text)
}

func (c *complaints) check(t *testing.T, what string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.list {
		t.Errorf("%s: %s", what, text)
	}
	c.list = nil
}

// site serves a dashboard with everything in it.
func site(t *testing.T, db *dashboardtest.DB, authorize func(*http.Request, dashboard.Permission) (string, error)) string {
	t.Helper()
	d, err := dashboard.New(dashboard.Config{
		Store: db.Operator(), Activity: db.Activity(), Authorize: authorize,
		Title: "staging", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/txonce/", http.StripPrefix("/txonce", d))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(d.Close)
	return s.URL + "/txonce/"
}

func everything(*http.Request, dashboard.Permission) (string, error) { return "ann", nil }

// pages are all pages, with something on them.
func pages(t *testing.T, db *dashboardtest.DB) []string {
	t.Helper()
	found, err := db.Operator().DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	list := []string{
		"", "consumers", "explain", "letters", "outbox", "windows", "actions", "plan?consumer=billing",
		"parked?topic=receipts", "explain?consumer=billing&key=order-40:paid&outbox=1", "letter?id=0",
	}
	for _, l := range found {
		switch {
		case l.Cause == "mismatch", l.Cause == "no_key", l.Record.Key.Consumer == "mailer":
			list = append(list, "letter?id="+l.ID.String(), "repair?id="+l.ID.String())
			if l.Record.Key.ID != "" {
				list = append(list, "explain?id="+l.ID.String())
			}
		}
	}
	return append(list, "action?id="+request(t, db))
}

// look is a way to look at a page.
type look struct {
	name    string
	width   int64
	scheme  string
	scripts bool
}

func looks() []look {
	return []look{
		{"light", 1280, "light", true},
		{"dark", 1280, "dark", true},
		{"phone", 360, "light", true},
		{"phone-dark", 360, "dark", true},
		{"no-scripts", 1280, "light", false},
	}
}

// covers reports whether the page of this number is looked at in this way. Of the four looks with scripts each page has
// two, of both widths and both schemes; with TXONCE_TEST_ALL it has all.
func (l look) covers(page int) bool {
	pair := 0
	if (l.width < 500) == (l.scheme == "dark") {
		pair = 1
	}
	return !l.scripts || matrix.Dealt(strconv.Itoa(page), pair, 2)
}

func (l look) apply(tb tab) {
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: 900,
		DeviceScaleFactor: 1, Mobile: l.width < 500,
	})
	call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}})
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !l.scripts})
}

// Every page, however one looks at it: nothing that keeps people from using it, nothing foreign, nothing that a policy
// stops, and no scrolling to the side.
func TestPages(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	base := site(t, db, everything)
	browser := newBrowser(t)
	all := pages(t, db)
	for _, l := range looks() {
		t.Run(l.name, func(t *testing.T) {
			tb := newTab(t, browser, base)
			l.apply(tb)
			for i, path := range all {
				if !l.covers(i) {
					continue
				}
				what := l.name + " /" + path
				tb.open(base + path)
				if title := run(tb, chromedp.Title()); !strings.HasSuffix(title, "· txonce") {
					t.Errorf("%s: the title is %q", what, title)
				}
				// Chromium also runs what the debugger evaluates where the scripts of pages are disabled.
				if wide := run(tb, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > l.width {
					t.Errorf("%s: %d pixels wide", what, wide)
				}
				if l.scripts { // axe-core waits for timers, which are scripts
					for _, v := range violations(tb) {
						t.Errorf("%s: %s", what, v)
					}
				}
				tb.check(t, what)
				screenshot(tb, fmt.Sprintf("%s-%02d-%s", l.name, i, strings.SplitN(path, "?", 2)[0]))
			}
		})
	}
}

// audit runs axe-core.
const audit = `;axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary).join(" | ")))`

// violations are what axe-core finds.
func violations(tb tab) []string {
	tb.t.Helper()
	return run(tb, chromedp.Evaluate[[]string](axe+audit, chromedp.EvalAwaitPromise))
}

// screenshot saves a picture of the page in the folder TXONCE_SCREENSHOTS, if it is set. With TXONCE_TEST_ALL there is
// one for each look.
func screenshot(tb tab, name string) {
	tb.t.Helper()
	dir := os.Getenv("TXONCE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png := run(tb, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, url.PathEscape(name)+".png"), png, 0o644); err != nil {
		tb.t.Fatal(err)
	}
}
