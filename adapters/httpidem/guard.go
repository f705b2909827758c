package httpidem

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/losses"
)

// Handler does the work of one request in tx. It reads r.Body and writes its response to w, which keeps it until
// COMMIT.
//
// After nil and a status below 400, the work and the response are committed together. A response without Cache-Control
// gets no-store.
//
// After an error, a panic or a status of 400 or more, the work is rolled back. When a Handler returns an error and has
// not written a status of 400 or more, the answer is 500, or 503 if the database was at fault or the error is
// dedup.ErrInFlight, which a store's LockKeys returns. Error texts are logged and never sent. A panic reaches the
// layers outside.
//
// A Handler may run several times for one request: in a later attempt after the database has failed, and when a retry
// comes after an attempt that was rolled back. Only one run is committed, so everything it does outside of tx may
// happen more than once, see DownstreamKey. ctx is r.Context. It outlives the client's connection and ends after
// Config.Timeout.
//
// A Handler must not keep tx, w or r after it returns.
type Handler[TTx any] func(ctx context.Context, tx TTx, w http.ResponseWriter, r *http.Request) error

// Guard makes HTTP handlers idempotent. It is safe for concurrent use. One Guard serves any number of routes.
type Guard[TTx any] struct {
	cfg     Config[TTx]
	results driver.ResultStore[TTx]
	twins   gate
	recent  recent
	losses  *losses.Watch
	slots   chan struct{} // one element for each transaction in progress

	recordAt atomic.Int64 // when recordSource tries again, as of time.Time.UnixNano
}

// New returns a Guard, or an error that names all fields of cfg that are at fault. It does not use the database.
func New[TTx any](cfg Config[TTx]) (*Guard[TTx], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Guard[TTx]{
		cfg: cfg, results: cfg.Store.(driver.ResultStore[TTx]),
		slots: make(chan struct{}, cfg.MaxConcurrent),
		losses: losses.New(cfg.Store, losses.Config{
			Name: cfg.Name, Window: cfg.Window, Logger: cfg.Logger, WentBack: cfg.Trace.WentBack,
			Resend: "Requests of that time were answered, so clients do not repeat them: find them in the logs of proxies and clients, " +
				"and send them again with the same keys. Those that are not lost are answered from the database then",
		}),
	}, nil
}

// noteLosses notes the outcome of a transaction with the claims of recs, which began with that history.
func (g *Guard[TTx]) noteLosses(history int64, recs []dedup.Record, a attempt) {
	if a.err == nil && a.known == nil && len(recs) > 0 {
		g.losses.Committed(history, recs[0].Key, 1)
	}
}

// Handle returns an http.Handler that runs h. It must be the innermost handler of a route: put routers and middlewares
// outside, above all those that authenticate. After the database has failed it runs h again, with a fresh copy of the
// request.
func (g *Guard[TTx]) Handle(h Handler[TTx]) http.Handler {
	if h == nil {
		panic("httpidem: Handle needs a Handler")
	}
	return &endpoint[TTx]{guard: g, handle: h, repeats: true}
}

// Wrap returns an http.Handler that runs next, which gets its transaction from Tx. It is for handlers that exist
// already: Handle runs again after the database has failed, and Wrap does not, because middlewares inside may have
// changed the request. Then the answer is 503, and the client's retry runs. Use Wrap inside the router, for single
// routes: around a router it would also guard paths that do not exist. If next has asked for neither Tx nor
// DownstreamKey, its 301, 307 or 308 is taken for a router's, and is not stored.
func (g *Guard[TTx]) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httpidem: Wrap needs an http.Handler")
	}
	return &endpoint[TTx]{guard: g, next: next, handle: func(_ context.Context, _ TTx, w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return nil
	}}
}

// Tx returns the transaction of a handler inside Wrap. It fails if ctx is not the context of such a handler's request,
// if the handler has returned, and if Config.Methods does not have the request's method.
func (g *Guard[TTx]) Tx(ctx context.Context) (tx TTx, err error) {
	e := executionOf(ctx)
	if e == nil || e.guard != any(g) {
		return tx, errors.New("httpidem: the request is not guarded by this Guard: Tx needs the context of a request inside Wrap, with a method of Config.Methods")
	}
	held, err := e.transaction()
	if err != nil {
		return tx, err
	}
	return held.(TTx), nil
}
