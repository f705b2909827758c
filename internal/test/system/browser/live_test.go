package browser_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

// The page of a server that is gone says that it is not live: the browser tries to connect for ever, which looks as
// before.
func TestServerGone(t *testing.T) {
	d, err := dashboard.New(dashboard.Config{
		Store: dashboardtest.SQLite(t).Operator(), Authorize: everything,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(d)
	t.Cleanup(d.Close)
	tb := newTab(t, newBrowser(t), s.URL)
	tb.open(s.URL + "/")
	tb.do(chromedp.WaitVisible(chromedp.CSS(`#liveness.live`)))
	d.Close()
	s.Close()
	tb.do(chromedp.WaitVisible(chromedp.CSS(`#liveness.dead`)))
}
