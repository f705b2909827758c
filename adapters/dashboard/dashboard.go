package dashboard

import (
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/usercode"
)

// Config configures a Dashboard. Store and Authorize are required.
type Config struct {
	Store ops.Store

	// Activity has the rates that an ops.Recorder in each worker writes: Store.Activity of pgxstore and sqlstore. nil:
	// no rates are shown, and not whether a consumer is paused.
	Activity ops.ActivityKeeper

	// Authorize decides whether a request may do something, and says who makes it, for the record of actions. It is
	// called for each request, several times, also concurrently; an error refuses, and its text is in the answer. It
	// does not log anybody in: put a middleware with that around the Dashboard.
	Authorize func(r *http.Request, p Permission) (who string, err error)

	// HideKeys replaces business keys and message IDs, where they name people. The forms then have no field that would
	// put a key into an address: Explain finds a key. Error texts are shown as they are.
	HideKeys ops.HideKeys

	// Title names the environment, such as "production". It is shown on each page. Empty: none.
	Title string

	// Runbook is the address of the folder with a page per alert. Defaults to the one of txonce.
	Runbook string

	// Logger gets errors of the store. Defaults to slog.Default().
	Logger *slog.Logger
}

const defaultRunbook = "https://github.com/txonce/txonce/blob/main/docs/runbook/"

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	cfg       Config
	snapshots snapshots
	templates map[string]*template.Template
	handler   http.Handler
	closed    chan struct{}
	closing   sync.Once
	viewers   chan struct{} // a token per live viewer
	searching chan struct{} // a token for the search of the outbox
}

// New returns a Dashboard.
func New(cfg Config) (*Dashboard, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("dashboard: Config.Store is required")
	case cfg.Authorize == nil:
		return nil, errors.New("dashboard: Config.Authorize is required: use Loopback to let this machine read")
	}
	if cfg.Runbook == "" {
		cfg.Runbook = defaultRunbook
	}
	cfg.Runbook = strings.TrimSuffix(cfg.Runbook, "/") + "/"
	cfg.Logger = usercode.Logger(cfg.Logger)
	d := &Dashboard{
		cfg: cfg, closed: make(chan struct{}), viewers: make(chan struct{}, maxViewers),
		searching: make(chan struct{}, 1),
	}
	d.snapshots.take = d.takeSnapshot
	var err error
	if d.templates, err = parseTemplates(d.funcs()); err != nil {
		return nil, fmt.Errorf("dashboard: templates: %w", err)
	}
	d.handler = d.routes()
	return d, nil
}

// Close ends the live connections, which http.Server.Shutdown would otherwise wait for: register it with
// RegisterOnShutdown. The Dashboard still answers other requests. A second call does nothing.
func (d *Dashboard) Close() { d.closing.Do(func() { close(d.closed) }) }

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// routes are all one level deep, so that relative links work below any prefix.
func (d *Dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.overview)
	mux.HandleFunc("GET /consumers", d.consumers)
	mux.HandleFunc("GET /windows", d.windows)
	mux.HandleFunc("GET /explain", d.explain)
	mux.HandleFunc("POST /explain", d.explain) // changes nothing; keeps hidden keys out of addresses
	mux.HandleFunc("GET /letters", d.letters)
	mux.HandleFunc("GET /letter", d.letter)
	mux.HandleFunc("GET /plan", d.plan)
	mux.HandleFunc("POST /replay", d.act(d.replay))
	mux.HandleFunc("POST /discard", d.act(d.discard))
	mux.HandleFunc("GET /repair", d.withPayload(d.editRepair))
	mux.HandleFunc("POST /repair", d.withPayload(d.compareRepair)) // changes nothing
	mux.HandleFunc("POST /repaired", d.withPayload(d.act(d.repair)))
	mux.HandleFunc("POST /end", d.act(d.end))
	mux.HandleFunc("GET /outbox", d.outbox)
	mux.HandleFunc("GET /parked", d.parkedPlan)
	mux.HandleFunc("POST /outbox", d.act(d.repairOutbox))
	mux.HandleFunc("GET /actions", d.actions)
	mux.HandleFunc("GET /action", d.action)
	mux.HandleFunc("GET /live", d.live)
	mux.HandleFunc("GET /static/{name}", d.static)

	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, http.StatusForbidden, errors.New("the request came from another site; open the dashboard and act there"))
	}))
	return secured(foreign.Handler(d.viewersOnly(mux)))
}

// secured sets the headers that every answer has.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "+
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// maxForm limits the body of a request, in bytes.
const maxForm = 256 << 10

func (d *Dashboard) viewersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := d.cfg.Authorize(r, View); err != nil {
			d.cfg.Logger.WarnContext(r.Context(), "dashboard: a request was refused", "path", r.URL.Path, "peer",
				r.RemoteAddr, "err", err)
			http.Error(w, "Forbidden. "+err.Error(), http.StatusForbidden)
			return
		}
		if err := readForm(r); err != nil {
			d.fail(w, r, http.StatusBadRequest, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readForm refuses what cannot be read: a field that is left out chooses everything. No database stores text that is
// not UTF-8.
func readForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	for field, values := range r.Form {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.Contains(v, "\x00") {
				return fmt.Errorf("%q is %q: want UTF-8 without NUL", field, v)
			}
		}
	}
	return nil
}

func (d *Dashboard) may(r *http.Request, p Permission) bool {
	_, err := d.cfg.Authorize(r, p)
	return err == nil
}
