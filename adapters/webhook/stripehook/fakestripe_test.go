package stripehook_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

// Keys that these tests made up.
const (
	liveKey = "rk_live_made0up1for2these3tests"
	testKey = "rk_test_made0up1for2these3tests"
)

// fakeStripe is Stripe's List Events. Tests add faults and events to it while a backfill pages.
type fakeStripe struct {
	mu       sync.Mutex
	events   []listed
	requests []*http.Request
	faults   []http.HandlerFunc // each replaces the next answer, unless it is nil
	before   func(n int)        // called before the nth request is answered, from 1; it may add events
}

type listed struct {
	event       stripehook.Event
	raw         json.RawMessage // as the list shows it
	undelivered bool
}

func (f *fakeStripe) add(events ...stripehook.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		f.events = append(f.events, listed{event: e, raw: form(e)})
	}
}

// fail makes the next answers. A nil fault is an answer without a fault.
func (f *fakeStripe) fail(faults ...http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// taken returns the requests since the last call.
func (f *fakeStripe) taken() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.requests
	f.requests = nil
	return taken
}

func (f *fakeStripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	n, before := len(f.requests), f.before
	var fault http.HandlerFunc
	if len(f.faults) > 0 {
		fault, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	if before != nil {
		before(n)
	}
	switch {
	case fault != nil:
		fault(w, r)
	case r.Header.Get("Authorization") != "Bearer "+liveKey && r.Header.Get("Authorization") != "Bearer "+testKey:
		problem(http.StatusUnauthorized, "invalid_request_error", "")(w, r)
	case r.Method != http.MethodGet || r.URL.Path != "/v1/events":
		problem(http.StatusNotFound, "invalid_request_error", "resource_missing")(w, r)
	default:
		f.list(w, r)
	}
}

// list answers as https://docs.stripe.com/api/events/list says: the newest first, in pages that begin after an event.
func (f *fakeStripe) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	query := r.URL.Query()
	newest := slices.Clone(f.events)
	slices.Reverse(newest)
	slices.SortStableFunc(newest, func(a, b listed) int { return cmp.Compare(b.event.Created.Unix(), a.event.Created.Unix()) })
	if after := query.Get("starting_after"); after != "" {
		i := slices.IndexFunc(newest, func(l listed) bool { return l.event.ID == after })
		if i < 0 {
			problem(http.StatusBadRequest, "invalid_request_error", "resource_missing")(w, r)
			return
		}
		newest = newest[i+1:]
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	data, more := [][]byte{}, false
	for i := range newest {
		l := &newest[i]
		created := l.event.Created.Unix()
		if created < bound(query, "created[gte]", 0) || created >= bound(query, "created[lt]", 1<<60) ||
			query.Get("delivery_success") == "false" && !l.undelivered ||
			query.Has("types[]") && !slices.Contains(query["types[]"], l.event.Type) {
			continue
		}
		if more = len(data) == limit; more {
			break
		}
		data = append(data, l.raw)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object": "list", "url": "/v1/events", "has_more": %t, "data": [%s]}`, more,
		bytes.Join(data, []byte(",\n    ")))
}

// form is how List Events shows an event: with another value in pending_webhooks, and with indentation.
func form(e stripehook.Event) json.RawMessage {
	body := bytes.Replace(e.Body(nil), []byte(`"pending_webhooks":1`), []byte(`"pending_webhooks":0`), 1)
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "    ", "  "); err != nil {
		panic(err)
	}
	return indented.Bytes()
}

func bound(query url.Values, name string, none int64) int64 {
	if n, err := strconv.ParseInt(query.Get(name), 10, 64); err == nil {
		return n
	}
	return none
}

// problem is an error as Stripe's API returns it. headers are names and values.
func problem(status int, kind, code string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Request-Id", "req_1")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"type": %q, "code": %q, "message": "about %s"}}`, kind, code,
			r.Header.Get("Authorization"))
	}
}

// cut ends the connection without an answer, or after a part of one.
func cut(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if part != "" {
			fmt.Fprint(w, part)
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// answer is a whole answer with status 200.
func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// serve runs an HTTP server on connections in memory, which work with virtual time, and returns a client for it.
func serve(t testing.TB, h http.Handler) *http.Client {
	l := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-ended
	})
	return &http.Client{Transport: transport}
}

type memory struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memory) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
