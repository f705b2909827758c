package browser_test

import (
	"errors"
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
	"github.com/txonce/txonce/internal/test/dashboardtest"
)

// request asks for a replay of one letter, and returns the action's ID.
func request(t *testing.T, db *dashboardtest.DB) string {
	t.Helper()
	a, err := db.Operator().Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-16", Filter: consumer.DeadLetterFilter{Consumer: "billing", Reason: "panic"}, Expect: 1,
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
	tb := newTab(t, newBrowser(t), base)
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	tb.open(base)
	const why = chromedp.CSS(`form[action=replay] input[name=why]`)
	tb.do(chromedp.Click(chromedp.CSS(`td a[href="letters?consumer=billing"]`)), chromedp.WaitVisible(chromedp.CSS(`select[name=cause]`)),
		chromedp.SendKeys(chromedp.CSS(`select[name=cause]`), "exhausted"), chromedp.Click(chromedp.CSS(`button[formaction=plan]`)),
		chromedp.WaitVisible(why), chromedp.SendKeys(why, "INC-17 is over"),
		chromedp.Click(chromedp.CSS(`form[action=replay] button`)), chromedp.WaitVisible(chromedp.CSS(`progress`)))
	if text := run(tb, chromedp.Text(mainPart)); !strings.Contains(text, "0 of 3") || !strings.Contains(text, "INC-17 is over") {
		t.Errorf("the page of the action: %s", text)
	}
	tb.check(t, "replay")
}

// The overview shows what happened after it was opened.
func TestLive(t *testing.T) {
	db := dashboardtest.SQLite(t)
	base := site(t, db, everything)
	tb := newTab(t, newBrowser(t), base)
	tb.open(base)
	tb.do(chromedp.WaitVisible(chromedp.CSS(`#liveness.live`)), chromedp.WaitVisible(chromedp.CSS(`.calm`)))
	db.Seed(t)
	tb.do(chromedp.WaitVisible(chromedp.CSS(`td a[href="letters?consumer=billing"]`)), chromedp.WaitVisible(chromedp.CSS(`.attention`)))
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
	tb.do(chromedp.Navigate(strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1)), chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(mainPart))
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
