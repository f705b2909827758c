package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer/driver"
)

// Receiver is the http.Handler for the webhooks of one sender. It is safe for concurrent use.
type Receiver struct {
	// The path of a delivery: read (request.go) → Verifier.Verify (verify.go) → Processor.ProcessBatch (work.go) → the
	// response (respond.go).

	cfg     Config
	source  Source
	starter *starter
	keys    *firstKey
	refused refusalLog
	bodies  budget

	mu      sync.Mutex
	working map[*work]struct{} // deliveries whose events are in work
	idle    chan struct{}      // closed when the last of them has ended; nil: Shutdown was not called
}

var _ http.Handler = (*Receiver)(nil)

// ErrShutdown is the cause that ends the contexts of handlers when Shutdown stops waiting for them.
var ErrShutdown = errors.New("webhook: the receiver shuts down")

// New returns a Receiver, or an error that names the fields of cfg that are invalid. It does not use the database.
func New(cfg Config) (*Receiver, error) {
	cfg, source, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Receiver{
		cfg: cfg, source: source, starter: newStarter(cfg.Processor), keys: newFirstKey(cfg.Processor),
		working: map[*work]struct{}{},
	}
	r.bodies.most = cfg.MaxInFlight - 2*cfg.MaxBody // the express has two buffers while it grows
	if sourced, ok := cfg.Processor.(driver.Sourced); ok {
		sourced.AddSource("webhook " + source.Name)
	}
	return r, nil
}

// Start makes the checks of the Processor that would otherwise make every delivery fail, if it is a driver.Starter: a
// missing schema, for example. It waits for a database that is away until ctx ends. Call it before the HTTP server
// listens. Without it, the first delivery starts the Processor, and deliveries are answered with 503 until that
// succeeds.
func (r *Receiver) Start(ctx context.Context) error {
	if err := r.starter.start(ctx); err != nil {
		return fmt.Errorf("webhook: %s: start: %w", r.source.Name, err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	began := time.Now()
	if ctx := r.cfg.Trace.Start(req.Context(), r.event(began, TraceEvent{})); ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	res := r.serve(w, req, began)
	ctx := req.Context()
	switch {
	case res.refusal != "":
		r.logRefused(ctx, req, res)
		r.cfg.Trace.Refused(ctx, r.event(began, TraceEvent{Refusal: res.refusal, Err: res.err, Status: res.status}))
	case res.err != nil:
		r.cfg.Logger.ErrorContext(ctx, "webhook: delivery not handled", "source", r.source.Name, "status", res.status,
			"error", res.err)
	}
	res.write(w) // also if the client is gone: middleware may have ended ctx, and net/http would send 200
	r.cfg.Trace.Answered(ctx, r.event(began, TraceEvent{Status: res.status, Err: res.err}))
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request, began time.Time) *response {
	held := r.bodies.share()
	defer held.done()
	delivery, res := r.read(w, req, began, held)
	if res != nil {
		return res
	}
	answerAt := began.Add(r.source.answerWithin())
	events, res := r.verify(req.Context(), delivery, answerAt)
	if res != nil {
		return res
	}
	return r.handle(req.Context(), delivery, events, answerAt, held)
}

// Shutdown waits for the handlers that are still at work, also for those whose delivery was answered before they
// returned. From now on, deliveries are answered with 503. Call it after http.Server.Shutdown. When ctx ends first,
// Shutdown ends the contexts of the handlers and returns an error: what they have not committed is rolled back, and
// delivered again.
func (r *Receiver) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	if r.idle == nil {
		r.idle = make(chan struct{})
		if len(r.working) == 0 {
			close(r.idle)
		}
	}
	r.mu.Unlock()
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.working) == 0 {
		return nil
	}
	for wk := range r.working {
		wk.cancel(ErrShutdown)
	}
	return fmt.Errorf("webhook: %s: %d deliveries were still in work, and their contexts are cancelled: %w",
		r.source.Name, len(r.working), context.Cause(ctx))
}

// begin returns the work of a delivery, or nil after Shutdown was called.
func (r *Receiver) begin(request context.Context) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		return nil
	}
	wk := newWork(request)
	r.working[wk] = struct{}{}
	return wk
}

func (r *Receiver) end(wk *work) {
	wk.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, wk)
	if len(r.working) == 0 && r.idle != nil {
		close(r.idle)
	}
}

// event fills in the fields that all events have.
func (r *Receiver) event(began time.Time, e TraceEvent) TraceEvent {
	e.Source, e.Took = r.source.Name, time.Since(began)
	return e
}
