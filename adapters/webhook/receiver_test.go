package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testlog"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// Nothing but a POST that the Verifier accepts reaches the Processor and its database.
func TestRequestsThatAreRefused(t *testing.T) {
	s := newShop()
	signed := func(t *testing.T) *http.Request {
		return s.request(t.Context(), shopEvent{ID: "1", Type: "paid", Created: time.Now()})
	}
	with := func(change func(*http.Request)) func(*testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			req := signed(t)
			change(req)
			return req
		}
	}
	body := func(text string) func(*testing.T) *http.Request {
		return with(func(req *http.Request) {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		})
	}
	for _, c := range []struct {
		name    string
		request func(*testing.T) *http.Request
		status  int
		body    string
		header  string // "Name: value"
		why     webhook.Refusal
	}{
		{
			"case 74: a GET", with(func(r *http.Request) { r.Method = "GET" }), 405, "refused\n", "Allow: POST",
			webhook.BadMethod,
		},
		{
			"case 74: a HEAD", with(func(r *http.Request) { r.Method = "HEAD" }), 405, "refused\n", "Allow: POST",
			webhook.BadMethod,
		},
		{"a PUT", with(func(r *http.Request) { r.Method = "PUT" }), 405, "refused\n", "Allow: POST", webhook.BadMethod},
		{
			"case 73: a compressed body", with(func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }), 415,
			"refused\n", "Accept-Encoding: identity", webhook.Encoded,
		},
		{"case 73: a compressed body, hidden behind identity", with(func(r *http.Request) { r.Header["Content-Encoding"] = []string{"identity", "br"} }), 415, "refused\n", "", webhook.Encoded},
		{"a declared size above the limit", func(t *testing.T) *http.Request {
			req := signed(t)
			req.Body, req.ContentLength = io.NopCloser(unread{t}), 1001
			return req
		}, 413, "refused\n", "Connection: close", webhook.TooLarge},
		{"an undeclared size above the limit", with(func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", 1001))), -1
		}), 413, "refused\n", "", webhook.TooLarge},
		{"a body that ends early", with(func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("["), errReader{io.ErrUnexpectedEOF}))
		}), 400, "refused\n", "", webhook.Truncated},
		{
			"a body that middleware has read", with(func(r *http.Request) { r.Body = http.NoBody }), 500,
			"internal error\n", "", "body-was-read",
		},
		{
			"case 47: no signature", with(func(r *http.Request) { r.Header.Del("Shop-Signature") }), 400, "refused\n", "",
			webhook.Unsigned,
		},
		{
			"case 47: two signatures", with(func(r *http.Request) { r.Header.Add("Shop-Signature", "00") }), 400,
			"refused\n", "", webhook.Unsigned,
		},
		{"case 49: a changed body", body(`[{"id":"2"}]`), 400, "refused\n", "", webhook.BadSignature},
		{
			"no body", with(func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }), 400, "refused\n", "",
			webhook.BadSignature,
		},
		{"malformed content", func(t *testing.T) *http.Request {
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("{"))
			req.Header.Set("Shop-Signature", s.sign([]byte("{")))
			return req
		}, 400, "refused\n", "", webhook.Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, hooks := &testlog.Log{}, &traced{}
			r := newReceiver(t, webhook.Config{
				Verifier: s, MaxBody: 1000, Logger: log.Logger(), Trace: hooks.trace(),
				Processor: answers(func(context.Context, []*consumer.Message) []error { t.Error("the Processor was called"); return nil }),
			})
			res := do(r, c.request(t))
			wantStatus(t, res, c.status)
			text, _ := io.ReadAll(res.Body)
			if string(text) != c.body {
				t.Errorf("body %q, want %q", text, c.body)
			}
			if name, value, found := strings.Cut(c.header, ": "); found && res.Header.Get(name) != value {
				t.Errorf("header %s: %q, want %q", name, res.Header.Get(name), value)
			}
			if want := fmt.Sprintf("refused %s, answered %d", c.why, c.status); hooks.String() != want {
				t.Errorf("hooks %q, want %q", hooks, want)
			}
			if log.Count("reason="+string(c.why)) != 1 || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("log: %s\nwant one line with the reason %s", log, c.why)
			}
		})
	}
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, e.error }

func TestABodyOfExactlyTheLimitIsAccepted(t *testing.T) {
	s := newShop()
	req := s.request(t.Context(), shopEvent{ID: "1", Created: time.Now()})
	r := newReceiver(t, webhook.Config{Verifier: s, MaxBody: req.ContentLength, Processor: always(nil)})
	wantStatus(t, do(r, req), 200)
	req = s.request(t.Context(), shopEvent{ID: "a longer one", Created: time.Now()})
	req.ContentLength = -1
	wantStatus(t, do(r, req), 413)
}

func TestTheSourceSaysHowLargeDeliveriesAre(t *testing.T) {
	for name, c := range map[string]struct{ source, config, want int64 }{
		"neither":  {0, 0, webhook.DefaultMaxBody},
		"source":   {1 << 20, 0, 1 << 20},
		"the user": {1 << 20, 1 << 10, 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop()
			s.source.MaxBody = c.source
			r := newReceiver(t, webhook.Config{
				Verifier: s, MaxBody: c.config, Processor: always(nil),
				AcceptedRisks: []webhook.Risk{webhook.RiskSmallBody},
			})
			for size, status := range map[int64]int{c.want: 400, c.want + 1: 413} { // 400: it is not signed
				wantStatus(t, do(r, httptest.NewRequestWithContext(t.Context(), "POST", "/",
					bytes.NewReader(make([]byte, size)))), status)
			}
		})
	}
}

// Refusals are caused by strangers, so they must not fill the log.
func TestRefusalsAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testlog.Log{}
		r := newReceiver(t, webhook.Config{
			Verifier: newShop(), Processor: always(nil), Logger: log.Logger(),
			RefusalStatus: 401,
		})
		unsigned := func() {
			wantStatus(t, do(r, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)), 401)
		}
		for range 100 {
			unsigned()
		}
		wantStatus(t, do(r, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)), 405) // another reason
		<-time.After(time.Second)
		unsigned()
		if log.Count("reason=unsigned") != 2 || log.Count("reason=bad-method") != 1 || log.Count("unlogged=99") != 1 {
			t.Errorf("log:\n%s\nwant 2 lines for 101 unsigned deliveries, the second with unlogged=99", log)
		}
	})
}

// What the Verifier and the Processor answer decides the response.
func TestAnswers(t *testing.T) {
	fails := errors.New("secret detail")
	retry := func(after time.Duration) error { return &consumer.RetryError{Err: fails, After: after} }
	verifier := func(err error) func(*shop) {
		return func(s *shop) { s.before = func(context.Context, *webhook.Delivery) error { return err } }
	}
	one := []shopEvent{{ID: "1", Type: "paid"}}
	three := []shopEvent{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	for _, c := range []struct {
		name      string
		shop      func(*shop)
		events    []shopEvent
		processor answers
		status    int
		after     string // Retry-After
		hooks     string
		body      string
	}{
		{"handled", nil, one, always(nil), 200, "", "accepted 1, answered 200", ""},
		{
			"again after 1.5 seconds", nil, one, always(retry(1500 * time.Millisecond)), 503, "2",
			"deferred 1, answered 503", "try again later\n",
		},
		{"again at once", nil, one, always(retry(0)), 503, "1", "deferred 1, answered 503", "try again later\n"},
		{
			"again after a day: bounded", nil, one, always(retry(24 * time.Hour)), 503, "600", "deferred 1, answered 503",
			"try again later\n",
		},
		{
			"in flight", nil, one, always(&consumer.RetryError{Err: dedup.ErrInFlight, Held: true}), 503, "1",
			"deferred 1, answered 503", "try again later\n",
		},
		{"given up and not kept", nil, one, always(fails), 500, "", "rejected 1, answered 500", "internal error\n"},
		{"the Processor panics", nil, one, func(context.Context, []*consumer.Message) []error { panic("secret detail") }, 500, "", "rejected 1, answered 500", "internal error\n"},
		{
			"too few answers", nil, one, func(context.Context, []*consumer.Message) []error { return nil }, 500, "",
			"rejected 1, answered 500", "internal error\n",
		},
		{
			"case 67: one of three again", nil, three,
			func(context.Context, []*consumer.Message) []error { return []error{nil, retry(3 * time.Second), nil} },
			503, "3",
			"accepted 1, deferred 2, accepted 3, answered 503", "try again later\n",
		},
		{
			"one of three given up", nil, three, func(context.Context,
				[]*consumer.Message,
			) []error {
				return []error{retry(0), fails, nil}
			}, 500, "",
			"deferred 1, rejected 2, accepted 3, answered 500", "internal error\n",
		},
		{
			"case 59: the Verifier cannot check it", verifier(fails), one, always(nil), 503, "30", "answered 503",
			"try again later\n",
		},
		{
			"the Verifier refuses it without a reason", verifier(webhook.Refuse("", "x")), one, always(nil), 400, "",
			"refused malformed, answered 400", "refused\n",
		},
		{
			"another app", verifier(fmt.Errorf("wrapped: %w", webhook.Refuse(webhook.WrongApp, "x"))), one, always(nil),
			400, "", "refused wrong-app, answered 400", "refused\n",
		},
		{"the Verifier panics", func(s *shop) { s.before = func(context.Context, *webhook.Delivery) error { panic(fails) } }, one, always(nil), 500, "", "answered 500", "internal error\n"},
		{"the Verifier returns nothing", nil, []shopEvent{}, always(nil), 500, "", "answered 500", "internal error\n"},
		{
			"the Verifier returns the tenant of another source", func(s *shop) { s.source.Name = "shopping" }, one,
			always(nil), 500, "", "answered 500", "internal error\n",
		},
		{
			"the Verifier returns the tenant of a source whose name begins with its own",
			func(s *shop) { s.source.Name = "sho" }, one, always(nil), 500, "", "answered 500", "internal error\n",
		},
		{"a dropped event", nil, []shopEvent{{ID: "1", Drop: "test"}}, nil, 200, "", "dropped 1, answered 200", ""},
		{"case 74: a challenge after the signature check", nil, []shopEvent{{ID: "1", Drop: "challenge", Reply: "3eZbrw"}}, nil, 200, "", "dropped 1, answered 200", "3eZbrw"},
		{
			"a dropped event beside another", nil,
			[]shopEvent{{ID: "1", Drop: "test", Reply: "hi"}, {ID: "2"}},
			always(nil), 200, "", "dropped 1, accepted 2, answered 200", "hi",
		},
		{
			"a dropped event beside one that fails", nil,
			[]shopEvent{{ID: "1", Drop: "test", Reply: "hi"}, {ID: "2"}},
			always(retry(0)), 503, "1", "dropped 1, deferred 2, answered 503", "try again later\n",
		},
		{
			"E24: a reply that redirects", nil,
			[]shopEvent{{ID: "1", Drop: "x", Reply: "x", Status: 302}},
			nil, 500, "",
			"answered 500", "internal error\n",
		},
		{
			"E24: a reply that ends the subscription", nil,
			[]shopEvent{{ID: "1", Drop: "x", Reply: "x", Status: 410}},
			nil, 500, "", "answered 500", "internal error\n",
		},
		{"E24: the sender's own reply", func(s *shop) {
			s.source.Reply = webhook.Reply{Status: 202, ContentType: "text/xml", Body: []byte("<Response/>")}
		}, one, always(nil), 202, "", "accepted 1, answered 202", "<Response/>"},
		{
			"E24: no content", func(s *shop) { s.source.Reply = webhook.Reply{Status: 204, Body: []byte("x")} }, one,
			always(nil), 204, "", "accepted 1, answered 204", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, hooks, log := newShop(), &traced{}, &testlog.Log{}
			if c.shop != nil {
				c.shop(s)
			}
			trace := hooks.trace()
			if s.source.Name != "shop" {
				trace = &webhook.Trace{}
				c.hooks = ""
			}
			r := newReceiver(t, webhook.Config{Verifier: s, Logger: log.Logger(), Trace: trace, Processor: answers(func(ctx context.Context, msgs []*consumer.Message) []error {
				for _, m := range msgs {
					if m.Attempt != 1 || !m.GiveUpAt.IsZero() {
						t.Errorf("Attempt %d, GiveUpAt %v", m.Attempt, m.GiveUpAt)
					}
				}
				return c.processor(ctx, msgs)
			})})
			res := s.send(t, r, c.events...)
			wantStatus(t, res, c.status)
			if after := res.Header.Get("Retry-After"); after != c.after {
				t.Errorf("Retry-After %q, want %q", after, c.after)
			}
			text, _ := io.ReadAll(res.Body)
			if diff := cmp.Diff(c.body, string(text)); diff != "" {
				t.Error(diff)
			}
			if hooks.String() != c.hooks {
				t.Errorf("hooks %q, want %q", hooks, c.hooks)
			}
			if c.status >= 300 && strings.Count(log.String(), "level=") == 0 {
				t.Error("nothing was logged")
			}
		})
	}
}

func TestTheURLThatASignatureCovers(t *testing.T) {
	for _, c := range []struct {
		name, public, target, want string
	}{
		{"no PublicURL", "", "/hooks?a=1", ""},
		{
			"E25: the Host header does not matter", "https://shop.example", "/hooks?a=1",
			"https://shop.example/hooks?a=1",
		},
		{
			"E25: bytes are kept", "https://shop.example/", "/a%2Fb//c?x=%7e&x=",
			"https://shop.example/a%2Fb//c?x=%7e&x=",
		},
		{"a path that a proxy removes", "https://shop.example/api", "/hooks", "https://shop.example/api/hooks"},
		{
			"E25: the absolute form", "https://shop.example", "http://evil.example/hooks?a=1",
			"https://shop.example/hooks?a=1",
		},
		{
			"E25: a path that looks like a host", "https://shop.example", "//evil.example/hooks",
			"https://shop.example//evil.example/hooks",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, got := newShop(), "none"
			s.before = func(_ context.Context, d *webhook.Delivery) error { got = d.URL; return nil }
			r := newReceiver(t, webhook.Config{Verifier: s, PublicURL: c.public, Processor: always(nil)})
			mux := http.NewServeMux()
			mux.Handle("/", http.StripPrefix("/hooks", r)) // RequestURI stays
			req := s.request(t.Context(), shopEvent{ID: "1"})
			made := httptest.NewRequest("POST", c.target, nil)
			req.URL, req.RequestURI, req.Host = made.URL, made.RequestURI, "evil.example"
			if c.target != "/hooks" {
				do(r, req)
			} else {
				do(mux, req)
			}
			if got != c.want {
				t.Errorf("URL %q, want %q", got, c.want)
			}
		})
	}
}

// A Starter is started by the first delivery, and deliveries are answered with 503 until that succeeds.
func TestStart(t *testing.T) {
	s, down := newShop(), errors.New("no schema")
	p := &sourced{answers: always(nil), starts: []error{down, down, nil}}
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: p})
	if diff := cmp.Diff([]string{"webhook shop"}, p.sources); diff != "" {
		t.Error(diff)
	}
	wantStatus(t, do(r, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)), 400)
	if len(p.starts) != 3 {
		t.Error("a delivery that is not verified has used the database")
	}
	if err := r.Start(t.Context()); !errors.Is(err, down) {
		t.Errorf("Start: %v", err)
	}
	for _, want := range []int{503, 200, 200} {
		wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), want)
	}
}

// A hook that panics must not end the process: the handlers run on a goroutine that net/http does not watch. The event
// is handled all the same.
func TestAHookThatPanics(t *testing.T) {
	s, log := newShop(), &testlog.Log{}
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: always(nil), Logger: log.Logger(), Trace: &webhook.Trace{
		Accepted: func(context.Context, webhook.TraceEvent) { panic("a bug in the metrics") },
	}})
	wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 200)
	if log.Count("a bug in the metrics") == 0 {
		t.Errorf("log: %s", log)
	}
}
