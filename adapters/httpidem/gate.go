package httpidem

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errTwin = errors.New("another request with this key runs in this process")

// gate lets one request per key pass at a time. Requests that wait hold no connection. The zero value is ready to use.
type gate struct {
	mu      sync.Mutex
	passing map[string]chan struct{} // closed when the request leaves
}

// enter waits until no other request has key, or returns errTwin after d, or the error of ctx. The caller must call
// leave.
func (g *gate) enter(ctx context.Context, key string, d time.Duration) (leave func(), waited time.Duration, err error) {
	other := g.pass(key)
	if other == nil {
		return func() { g.leave(key) }, 0, nil
	}
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for other != nil {
		select {
		case <-other:
			other = g.pass(key)
		case <-timer.C:
			return nil, time.Since(began), errTwin
		case <-ctx.Done():
			return nil, time.Since(began), context.Cause(ctx)
		}
	}
	return func() { g.leave(key) }, time.Since(began), nil
}

// pass returns nil if the caller may pass, and otherwise a channel that is closed when the other request leaves.
func (g *gate) pass(key string) (other <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch, taken := g.passing[key]; taken {
		return ch
	}
	if g.passing == nil {
		g.passing = map[string]chan struct{}{}
	}
	g.passing[key] = make(chan struct{})
	return nil
}

func (g *gate) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.passing[key])
	delete(g.passing, key)
}
