// Package fetch makes the requests to other servers that a verifier needs to check a delivery. A stranger can cause
// such requests with forged deliveries, so they are shared and bounded.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/usercode"
)

// Shared makes at most one request per key at a time, for all deliveries that need the answer. It repeats a failed
// request only after FailedFor. It is safe for concurrent use.
type Shared[K comparable, V any] struct {
	FailedFor time.Duration // does not change after the first Get

	mu      sync.Mutex
	running map[K]*running[V]
	failed  map[K]failure
}

// Request is one request. Its functions other than Do run under a lock of the Shared, which also guards what they keep.
type Request[V any] struct {
	Known func() (answer V, found bool)        // returns an answer that was kept
	Allow func() error                         // says why Do must not run now; nil: it always may
	Do    func(ctx context.Context) (V, error) // asks the server, on a goroutine of its own; ctx never ends
	Keep  func(answer V)                       // keeps an answer of Do
}

// running is a request that several deliveries wait for. answer and err are written before done is closed.
type running[V any] struct {
	done   chan struct{}
	answer V
	err    error
}

type failure struct {
	err   error
	until time.Time
}

// Get returns the known answer for key, or waits until a request has it, but not longer than until ctx ends.
func (s *Shared[K, V]) Get(ctx context.Context, key K, r Request[V]) (answer V, err error) {
	q, answer, err := s.begin(ctx, key, r)
	if q == nil {
		return answer, err
	}
	select {
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-q.done:
		return q.answer, q.err
	}
}

// begin returns the request to wait for, or nil and the result that is known already.
func (s *Shared[K, V]) begin(ctx context.Context, key K, r Request[V]) (q *running[V], answer V, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer, found := r.Known(); found {
		return nil, answer, nil
	}
	if q := s.running[key]; q != nil {
		return q, answer, nil
	}
	if f, found := s.failed[key]; found && time.Now().Before(f.until) {
		return nil, answer, fmt.Errorf("not asked again so soon: %w", f.err)
	}
	if r.Allow != nil {
		if err := r.Allow(); err != nil {
			return nil, answer, err
		}
	}
	if s.running == nil {
		s.running, s.failed = map[K]*running[V]{}, map[K]failure{}
	}
	q = &running[V]{done: make(chan struct{}), err: errors.New("the request was abandoned")}
	s.running[key] = q
	// The answer is for all deliveries that wait, so the request does not end with one of them.
	go s.run(context.WithoutCancel(ctx), key, r, q)
	return q, answer, nil
}

// run makes the request, and wakes the deliveries that wait for it.
func (s *Shared[K, V]) run(ctx context.Context, key K, r Request[V], q *running[V]) {
	q.err = usercode.Err("the request", func() (err error) { // it calls the user's HTTP client
		q.answer, err = r.Do(ctx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(q.done)
	delete(s.running, key)
	if q.err == nil {
		r.Keep(q.answer)
		return
	}
	now := time.Now()
	maps.DeleteFunc(s.failed, func(_ K, f failure) bool { return !now.Before(f.until) })
	s.failed[key] = failure{err: q.err, until: now.Add(s.FailedFor)}
}

// Body sends req and returns the body of the response. It returns an error unless the status is 200 and the body has at
// most most bytes.
func Body(client *http.Client, req *http.Request, most int64) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response has the status %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("the response has more than %d bytes", most)
	}
	return body, err
}
