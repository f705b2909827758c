package publishing

import (
	"context"
	"errors"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// A Pool holds the client that the calls of a Publisher share. Its functions are set before the first call. It is safe
// for concurrent use.
type Pool[C comparable] struct {
	// Open connects a client, which may take as long as the client's own timeouts: calls do not wait for it longer than
	// their contexts. old is the client that is not usable any more, or the zero value; Open may repair and return it.
	// The client's calls must end when life ends.
	Open func(life context.Context, old C) (C, error)

	// Usable reports whether a client may take more calls. nil: it always may, until a call releases it as broken. It
	// must not block.
	Usable func(C) bool

	// Cut ends a client that takes no more calls, with everything that it has not sent.
	Cut func(C)

	// Unopened wraps the error of an Open that failed or did not return in time.
	Unopened func(err error) error

	// Closed is the cause of the error that every call gets after Close.
	Closed error

	begin  sync.Once
	life   context.Context // from the first Acquire to Close
	cancel context.CancelFunc
	calls  sync.WaitGroup
	owned  sync.WaitGroup // goroutines, started by calls or by each other

	mu      sync.Mutex
	closed  bool
	current *Client[C]
	opening *opening
}

// A Client is a C in use by one or more calls. Pool.mu guards it.
type Client[C comparable] struct {
	C       C
	calls   int
	retired bool // takes no more calls
	cut     bool
}

// opening is a client that is being connected.
type opening struct {
	done chan struct{}
	err  error // set before done is closed
}

// Acquire returns a usable client, and opens one if there is none. The caller must release it. The error is an
// *outbox.UnavailableError, or a plain error if ctx was cancelled.
func (p *Pool[C]) Acquire(ctx context.Context) (*Client[C], error) {
	p.begin.Do(func() { p.life, p.cancel = context.WithCancel(context.WithoutCancel(ctx)) })
	for {
		client, o := p.take()
		switch {
		case client != nil:
			return client, nil
		case o == nil:
			return nil, p.Failed(nil)
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, p.Failed(o.err)
			}
		case <-ctx.Done():
			return nil, p.Failed(ctx.Err())
		case <-p.life.Done():
			return nil, p.Failed(nil)
		}
	}
}

// take returns the current client, or the opening of a client to wait for, or neither if the Pool is closed.
func (p *Pool[C]) take() (*Client[C], *opening) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch client := p.current; {
	case p.closed:
		return nil, nil
	case client != nil && (p.Usable == nil || p.Usable(client.C)):
		client.calls++
		p.calls.Add(1)
		return client, nil
	case p.opening == nil:
		o := &opening{done: make(chan struct{})}
		p.opening = o
		p.owned.Go(func() { p.replace(o, client) })
	}
	return nil, p.opening
}

// replace opens a client in place of old, which may be nil.
func (p *Pool[C]) replace(o *opening, old *Client[C]) {
	var broken C
	if old != nil {
		broken = old.C
	}
	c, err := p.Open(p.life, broken)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(o.done)
	p.opening, o.err = nil, err
	if old != nil {
		if err == nil && c == broken { // Open has repaired old, unless a call has found it broken again
			return
		}
		p.retire(old)
	}
	if err != nil {
		return
	}
	fresh := &Client[C]{C: c}
	if p.closed {
		p.retire(fresh)
		return
	}
	p.current = fresh
}

// Release ends a call's use of client. broken: other calls must not use it any more.
func (p *Pool[C]) Release(client *Client[C], broken bool) {
	defer p.calls.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	client.calls--
	if broken || client.retired {
		p.retire(client)
	}
}

// retire lets client take no more calls, and cuts it when none runs. p.mu is held.
func (p *Pool[C]) retire(client *Client[C]) {
	client.retired = true
	if p.current == client {
		p.current = nil
	}
	if client.calls == 0 && !client.cut {
		client.cut = true
		p.Discard(client.C)
	}
}

// Discard cuts c in the background. A call uses it for a client that it opened for itself.
func (p *Pool[C]) Discard(c C) { p.Go(func() { p.Cut(c) }) }

// Go runs f in a goroutine that Close waits for. Only calls that hold a Client may use it, Open, and f itself.
func (p *Pool[C]) Go(f func()) { p.owned.Go(f) }

// Failed returns the error for a message that was not sent because there is no client: Closed after Close, and
// otherwise err, wrapped.
func (p *Pool[C]) Failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &outbox.UnavailableError{Err: p.Closed}
	}
	err = p.Unopened(err)
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &outbox.UnavailableError{Err: err}
}

// Close ends the life of all clients, and returns when all calls have returned and all clients are cut.
func (p *Pool[C]) Close() {
	p.begin.Do(func() { p.cancel = func() {} }) // nothing was opened, and nothing will be
	p.mu.Lock()
	p.closed = true
	p.cancel()
	if p.current != nil {
		p.retire(p.current)
	}
	p.mu.Unlock()
	p.calls.Wait()
	p.owned.Wait()
}

// Life ends with Close. It may be used by calls that hold a Client.
func (p *Pool[C]) Life() context.Context { return p.life }

// Background runs open in a goroutine, for a call that waits for it only until ctx or the Pool's life ends. What open
// returns after that is given to discard, which may be nil.
func Background[C comparable, T any](ctx context.Context, p *Pool[C], open func() (T, error),
	discard func(T),
) (T, error) {
	type result struct {
		t   T
		err error
	}
	results, left := make(chan result), make(chan struct{})
	p.Go(func() {
		t, err := open()
		select {
		case results <- result{t, err}:
		case <-left:
			if err == nil && discard != nil {
				discard(t)
			}
		}
	})
	defer close(left)
	select {
	case r := <-results:
		return r.t, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	case <-p.life.Done():
		return *new(T), p.life.Err()
	}
}
