package httpidem

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/txonce/txonce/dedup/driver"
)

// Peek reports whether a request is a repeat: whether its key has a stored response, whatever the content is. The
// request then runs no handler: it is answered with the stored response, or with 422. So a rate limiter outside of the
// Guard can let repeats pass before it counts:
//
//	if repeat, err := guard.Peek(r); err == nil && repeat {
//		next.ServeHTTP(w, r)
//		return
//	}
//
// Call it behind authentication, because it asks Config.Principal, which here gets a request without a body. It does
// not read the body, claims nothing, and waits for no other request. It reads one row for each of Config.Secrets, so
// put a cheap limit that counts all requests outside of it. A request without a usable key or principal is no repeat:
// the Guard refuses it. In the moment when its key is deleted, after Config.Window, a repeat may pass and run. After an
// error nothing is known: count the request.
func (g *Guard[TTx]) Peek(r *http.Request) (repeat bool, err error) {
	reader, ok := g.cfg.Store.(driver.KeyReader)
	if !ok {
		return false, fmt.Errorf("httpidem: Peek: %T is no driver.KeyReader", g.cfg.Store)
	}
	if !slices.Contains(g.cfg.Methods, r.Method) {
		return false, nil
	}
	key, err := readKey(r.Header, g.cfg.Header, g.cfg.StrictKey)
	if err != nil {
		return false, nil // the Guard refuses it, or lets it run without a key
	}
	c := &call[TTx]{guard: g, cfg: &g.cfg, r: r}
	if c.identify(key) != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), claimWithin, errBusy)
	defer cancel()
	for _, rec := range c.recs {
		claim, found, err := reader.Lookup(ctx, rec.Key)
		switch {
		case err != nil:
			return false, fmt.Errorf("httpidem: Peek: %w", err)
		case found && claim.Result != nil:
			return true, nil
		}
	}
	return false, nil
}
