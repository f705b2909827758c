package httpidem

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/httpkey"
	"github.com/txonce/txonce/internal/usercode"
)

// endpoint is a handler behind a Guard.
type endpoint[TTx any] struct {
	guard   *Guard[TTx]
	handle  Handler[TTx]
	next    http.Handler // what Wrap wraps; nil for Handle
	repeats bool         // the handler may run again after the database has failed
}

// call is one request to an endpoint.
type call[TTx any] struct {
	at    *endpoint[TTx]
	guard *Guard[TTx]
	cfg   *Config[TTx]
	w     http.ResponseWriter
	r     *http.Request
	began time.Time
	body  []byte

	content []byte // of Config.Fingerprint

	id           *httpkey.Identity // nil: the request has no key
	recs         []dedup.Record
	fingerprints []fingerprint // fingerprints[i] is stored with recs[i]
	row          int           // index in recs of the row that the database has

	inDoubt bool // a COMMIT of an earlier attempt got no answer

	unanswered bool          // a COMMIT got no answer
	waited     time.Duration // for another request with the key
}

// ServeHTTP implements http.Handler.
func (e *endpoint[TTx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guarded := slices.Contains(e.guard.cfg.Methods, r.Method)
	if !guarded && e.next != nil {
		e.next.ServeHTTP(w, r)
		return
	}
	c := &call[TTx]{at: e, guard: e.guard, cfg: &e.guard.cfg, w: w, r: r, began: time.Now()}
	if ctx := c.cfg.Trace.Start(r.Context(), c.event("", 0)); ctx != r.Context() {
		c.r = r.WithContext(ctx)
	}
	if res := c.watched(guarded); !wroteAround(w) {
		res.send(w)
	}
}

// watched is serve, and reports a panic, which reaches the layers outside.
func (c *call[TTx]) watched(guarded bool) (res *response) {
	defer func() {
		if res == nil { // the handler panicked, or called runtime.Goexit
			c.cfg.Trace.Panicked(c.r.Context(), c.event(Panicked, 0))
		}
	}()
	return c.serve(guarded)
}

// serve returns the response. When it has returned, another request may have the key: a client that has lost its
// connection sends the request again, while the server still waits for the lost connection to take the response.
func (c *call[TTx]) serve(guarded bool) *response {
	if refused := c.prepare(guarded); refused != nil {
		return c.refuse(refused)
	}
	if c.id == nil {
		return c.answer()
	}
	leave, waited, err := c.guard.twins.enter(c.r.Context(), c.recs[0].Key.ID, c.cfg.Wait)
	c.waited += waited
	switch {
	case errors.Is(err, errTwin):
		return c.refuse(refuse(InFlight, err))
	case err != nil:
		return c.refuse(refuse(Disconnected, err))
	}
	defer leave() // also when the handler panics
	return c.answer()
}

// prepare reads the request. Nothing has asked the database yet.
func (c *call[TTx]) prepare(guarded bool) *refusal {
	if executionOf(c.r.Context()) != nil {
		return refuse(Misused, errors.New("a handler behind httpidem is behind httpidem again: guard each route once"))
	}
	named := false
	key, err := readKey(c.r.Header, c.cfg.Header, c.cfg.StrictKey)
	switch {
	case !guarded, errors.Is(err, errNoKey) && c.cfg.Optional:
	case errors.Is(err, errNoKey):
		return refuse(MissingKey, err)
	case err != nil:
		return refuse(MalformedKey, err)
	default:
		named = true
	}
	body, refused := readBody(c.w, c.r, c.cfg.MaxBody)
	if refused != nil {
		return refused
	}
	c.body = body
	if !named {
		return nil
	}
	if refused := c.identify(key); refused != nil {
		return refused
	}
	r := c.withBody(c.r.WithContext(c.r.Context()))
	defer removeFiles(r)
	err = usercode.Err("Config.Fingerprint", func() (err error) { c.content, err = c.cfg.Fingerprint(r, body); return err })
	if err != nil {
		return refuse(Failed, err)
	}
	for _, secret := range c.cfg.Secrets {
		c.fingerprints = append(c.fingerprints, fingerprintUnder(secret, c.content))
	}
	return nil
}

// identify makes a record for each secret. All are claimed: a process whose first secret is another one claims at least
// one of them.
func (c *call[TTx]) identify(key string) *refusal {
	r := c.withBody(c.r.WithContext(c.r.Context()))
	defer removeFiles(r)
	var principal string
	err := usercode.Err("Config.Principal", func() (err error) { principal, err = c.cfg.Principal(r); return err })
	if err == nil && principal == "" {
		err = errors.New("Config.Principal returned nobody")
	}
	if err != nil {
		return refuse(NoPrincipal, err)
	}
	uri, err := target(c.r)
	if err != nil {
		return refuse(Misused, err)
	}
	c.id = &httpkey.Identity{Name: c.cfg.Name, Principal: principal, Method: c.r.Method, Target: uri, Key: key}
	var made time.Time
	if c.cfg.KeyTime != nil {
		if ended := usercode.Run(func() { made = c.cfg.KeyTime(key) }); ended != nil {
			return refuse(Failed, ended.Of("Config.KeyTime"))
		}
	}
	for _, secret := range c.cfg.Secrets {
		k := dedup.Key{Consumer: c.cfg.Name, ID: c.id.Under(secret)}
		c.recs = append(c.recs, dedup.Record{Key: k, Time: made, Window: c.cfg.Window})
	}
	return nil
}

// refuse returns the answer with a reason. Errors of the server are logged.
func (c *call[TTx]) refuse(refused *refusal) *response {
	e := c.event(refusedBecause(refused.reason), refused.status())
	e.Reason, e.Err = refused.reason, refused.err
	c.cfg.Trace.Refused(c.r.Context(), e)
	if e.Status >= 500 && refused.reason != Disconnected {
		c.cfg.Logger.ErrorContext(c.r.Context(), "httpidem: a request failed",
			"guard", c.cfg.Name, "method", c.r.Method, "pattern", c.r.Pattern, "status", e.Status, "reason",
			string(refused.reason), "error", refused.err)
	}
	return refused.response(c.r, c.cfg.Header, c.cfg.Problem)
}

func (c *call[TTx]) event(decision Decision, status int) Event {
	e := Event{
		Guard: c.cfg.Name, Request: c.r, Decision: decision, Status: status, Took: time.Since(c.began),
		Waited: c.waited, InDoubt: c.unanswered,
	}
	if len(c.recs) > 0 {
		e.Key = c.recs[c.row].Key.ID
	}
	return e
}
