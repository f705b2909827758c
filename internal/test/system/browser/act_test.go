package browser_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

// request asks for a replay of one letter, and returns the action's ID.
func request(t *testing.T, db *dashboardtest.DB) string {
	t.Helper()
	a, err := db.Operator().Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-16",
		Filter: consumer.DeadLetterFilter{Consumer: "billing", Cause: "panic"}, Expect: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.ID.String()
}

func acted(t *testing.T, db *dashboardtest.DB) []ops.Action {
	t.Helper()
	found, err := db.Operator().Actions(t.Context(), ops.ActionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A person without JavaScript goes from the overview to a requested replay.
func TestReplayWithoutScripts(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	base := site(t, db, everything)
	tb := withoutScripts(t, base)
	const why = chromedp.CSS(`form[action=replay] input[name=why]`)
	tb.do(chromedp.Click(chromedp.CSS(`td a[href="letters?consumer=billing"]`)),
		chromedp.WaitVisible(chromedp.CSS(`select[name=cause]`)),
		chromedp.SendKeys(chromedp.CSS(`select[name=cause]`), "exhausted"),
		chromedp.Click(chromedp.CSS(`button[formaction=plan]`)),
		chromedp.WaitVisible(why), chromedp.SendKeys(why, "INC-17 is over"),
		chromedp.Click(chromedp.CSS(`form[action=replay] button`)), chromedp.WaitVisible(chromedp.CSS(`progress`)))
	if text := run(tb, chromedp.Text(mainPart)); !strings.Contains(text, "0 of 3") ||
		!strings.Contains(text, "INC-17 is over") {
		t.Errorf("the page of the action: %s", text)
	}
	tb.check(t, "replay")
}

// withoutScripts opens a tab that runs no JavaScript.
func withoutScripts(t *testing.T, base string) tab {
	t.Helper()
	tb := newTab(t, newBrowser(t), base)
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	tb.open(base)
	return tb
}

// A person edits a payload, sees the difference, and requests the repair. The browser sends the lines of a form with
// other ends than they had.
func TestRepairWithoutScripts(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Broken.Store(true)
	m := dashboardtest.Message("order-1:paid")
	m.Payload = []byte("\n{\n  \"amount\": 1250,\n  \"note\": \"</textarea>\"\n}")
	if err := db.Consumer(t, "billing").Process(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	tb := withoutScripts(t, site(t, db, everything))
	const text, why = chromedp.CSS(`textarea`), chromedp.CSS(`form[action=repaired] input[name=why]`)
	tb.do(chromedp.Click(chromedp.CSS(`a[href=letters]`)), chromedp.Click(chromedp.CSS(`th a[href^="letter?id="]`)),
		chromedp.Click(chromedp.CSS(`a[href^="repair?id="]`)), chromedp.WaitVisible(text),
		chromedp.SendKeys(text, "first\n"),
		chromedp.Click(chromedp.CSS(`form[action=repair] button`)), chromedp.WaitVisible(why))
	if diff := run(tb, chromedp.Text(chromedp.CSS(`pre`))); !strings.Contains(diff, "+ first") ||
		!strings.Contains(diff, "  {") {
		t.Errorf("the difference: %s", diff)
	}
	tb.do(chromedp.SendKeys(why, "the amount was wrong"), chromedp.Click(chromedp.CSS(`form[action=repaired] button`)),
		chromedp.WaitVisible(chromedp.CSS(`progress`)))
	if page := run(tb, chromedp.Text(mainPart)); !strings.Contains(page, "0 of 1") ||
		!strings.Contains(page, "the amount was wrong") {
		t.Errorf("the page of the action: %s", page)
	}
	tb.check(t, "repair")
	want := fmt.Sprintf("%x", sha256.Sum256(append([]byte("first\n"), m.Payload...)))
	if a := acted(t, db); len(a) != 1 || a[0].Kind != ops.Repair || !strings.Contains(a[0].Filter, want) {
		t.Errorf("actions %+v; want a repair whose payload has the SHA-256 %s", a, want)
	}
}

// The page with the difference can be used by everybody.
func TestRepairIsAccessible(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	base := site(t, db, everything)
	tb := newTab(t, newBrowser(t), base)
	for _, scheme := range []string{"light", "dark"} {
		look{name: scheme, width: 360, scheme: scheme, scripts: true}.apply(tb)
		tb.open(base + "letters?cause=panic")
		tb.do(chromedp.Click(chromedp.CSS(`th a[href^="letter?id="]`)),
			chromedp.Click(chromedp.CSS(`a[href^="repair?id="]`)),
			chromedp.SendKeys(chromedp.CSS(`textarea`), "x"),
			chromedp.Click(chromedp.CSS(`form[action=repair] button`)),
			chromedp.WaitVisible(chromedp.CSS(`form[action=repaired]`)))
		for _, v := range violations(tb) {
			t.Errorf("%s: %s", scheme, v)
		}
		if wide := run(tb, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > 360 {
			t.Errorf("%s: %d pixels wide", scheme, wide)
		}
		tb.check(t, scheme)
	}
}

// A person sees how many messages are parked before all of them are unparked.
func TestUnparkWithoutScripts(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	tb := withoutScripts(t, site(t, db, everything))
	const why = chromedp.CSS(`form[action=outbox] input[name=why]`)
	tb.do(chromedp.Click(chromedp.CSS(`nav a[href=outbox]`)), chromedp.Click(chromedp.CSS(`button[formaction=parked]`)),
		chromedp.WaitVisible(chromedp.CSS(`.verdict`)))
	if page := run(tb, chromedp.Text(mainPart)); !strings.Contains(page, "2 parked messages match") {
		t.Errorf("the dry run: %s", page)
	}
	tb.do(chromedp.SendKeys(why, "the limit is raised"), chromedp.Click(chromedp.CSS(`button[value=unpark]`)),
		chromedp.WaitVisible(chromedp.CSS(`dl`)))
	if a := acted(t, db); len(a) != 1 || a[0].Kind != ops.Unpark {
		t.Errorf("actions %+v", a)
	}
	tb.check(t, "unpark")
}

// A person asks what has become of a key, and of its outbox messages.
func TestExplainWithoutScripts(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	tb := withoutScripts(t, site(t, db, everything))
	tb.do(chromedp.Click(chromedp.CSS(`nav a[href=explain]`)), chromedp.SendKeys(chromedp.CSS(`input[name=consumer]`),
		"billing"),
		chromedp.SendKeys(chromedp.CSS(`input[name=key]`), "order-40:paid"),
		chromedp.Click(chromedp.CSS(`form[action=explain] button`)),
		chromedp.Click(chromedp.CSS(`a.button[href*="outbox=1"]`)),
		chromedp.WaitVisible(chromedp.CSS(`input[name=outbox]:checked`)))
	if page := run(tb, chromedp.Text(mainPart)); !strings.Contains(page,
		"0 pending, 0 parked: all with IDs derived from this key are confirmed") {
		t.Errorf("the explanation: %s", page)
	}
	tb.check(t, "explain")
}

// The overview shows what happened after it was opened.
func TestLive(t *testing.T) {
	db := dashboardtest.SQLite(t)
	base := site(t, db, everything)
	tb := newTab(t, newBrowser(t), base)
	tb.open(base)
	tb.do(chromedp.WaitVisible(chromedp.CSS(`#liveness.live`)), chromedp.WaitVisible(chromedp.CSS(`.calm`)))
	db.Seed(t)
	tb.do(chromedp.WaitVisible(chromedp.CSS(`td a[href="letters?consumer=billing"]`)),
		chromedp.WaitVisible(chromedp.CSS(`.attention`)))
	tb.check(t, "live")
}

// A page of another site can neither act with the session of a person who may, nor put the dashboard into a frame.
func TestForeignSite(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	base := site(t, db, everything)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<form action="` + base + `replay" method="post"><input name="consumer" value="billing"><input name="why" value="attack"><button>go</button></form>
<iframe src="` + base + `"></iframe>`))
	}))
	t.Cleanup(foreign.Close)
	tb := newTab(t, newBrowser(t), "http://")
	tb.do(chromedp.Navigate(strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1)),
		chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(mainPart))
	if text := run(tb, chromedp.Text(mainPart)); !strings.Contains(text, "another site") {
		t.Errorf("the answer: %s", text)
	}
	if !slices.ContainsFunc(tb.list, func(s string) bool { return strings.Contains(s, "frame-ancestors") }) {
		t.Errorf("the frame was not refused: %q", tb.list)
	}
	if a := acted(t, db); len(a) != 0 {
		t.Errorf("actions %+v", a)
	}
}

// Without the permission there is nothing to press.
func TestReadOnly(t *testing.T) {
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	base := site(t, db, func(_ *http.Request, p dashboard.Permission) (string, error) {
		if p != dashboard.View {
			return "", errors.New("read-only")
		}
		return "bob", nil
	})
	tb := newTab(t, newBrowser(t), base)
	for _, path := range pages(t, db) {
		tb.open(base + path)
		if n := run(tb, chromedp.Evaluate[int](`document.querySelectorAll("form[method=post], pre[aria-label^=Payload]").length`)); n != 0 {
			t.Errorf("/%s: %d forms that act and payloads", path, n)
		}
	}
}
