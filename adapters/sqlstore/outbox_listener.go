package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/wakes"
)

const (
	// after Listen has returned for the first time; doubles with each further time
	listenPause    = 100 * time.Millisecond
	maxListenPause = 30 * time.Second
	listenedLong   = time.Minute // a Listen that took this long was no failure
)

// listener calls Config.Outbox.Listen again and again.
type listener struct {
	notified atomic.Pointer[atomic.Bool] // whether the current call has called notified; nil: there is no call
	cancel   context.CancelFunc
	done     chan struct{}
}

// subscribe subscribes a session to commits. leave ends that: wait waits until the listener has ended with the last
// session, or ctx ends.
func (s *Store) subscribe(ctx context.Context) (sub *wakes.Subscription, leave func() (wait func(ctx context.Context) error)) {
	sub, unsubscribe := s.outbox.wakes.Subscribe()
	s.startListening(ctx)
	return sub, sync.OnceValue(func() (wait func(ctx context.Context) error) {
		unsubscribe()
		return s.stopListening()
	})
}

// startListening starts the listener with the first session.
func (s *Store) startListening(ctx context.Context) {
	s.outbox.listening.Lock()
	defer s.outbox.listening.Unlock()
	s.outbox.sessions++
	if s.cfg.Outbox.Listen == nil || s.outbox.listener != nil {
		return
	}
	l := &listener{done: make(chan struct{})}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.outbox.listener = l
	go func() {
		defer close(l.done)
		s.listen(ctx, l)
	}()
}

// stopListening ends the listener with the last session. wait waits until Listen has returned, or ctx ends.
func (s *Store) stopListening() (wait func(ctx context.Context) error) {
	s.outbox.listening.Lock()
	defer s.outbox.listening.Unlock()
	l := s.outbox.listener
	if s.outbox.sessions--; s.outbox.sessions > 0 || l == nil {
		return func(context.Context) error { return nil }
	}
	l.cancel()
	s.outbox.listener = nil
	return func(ctx context.Context) error {
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("sqlstore: close: Config.Outbox.Listen has not returned, although its context has ended: %w", ctx.Err())
		}
	}
}

// listens reports whether the sessions are notified of the commits of other processes.
func (s *Store) listens() bool {
	s.outbox.listening.Lock()
	defer s.outbox.listening.Unlock()
	if s.outbox.listener == nil {
		return false
	}
	notified := s.outbox.listener.notified.Load()
	return notified != nil && notified.Load()
}

// listen returns when ctx has ended. Errors are no reason to stop: the relays poll meanwhile.
func (s *Store) listen(ctx context.Context, l *listener) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		if statements, err := s.db.Outbox.Listening.ListenStatements(ctx); err == nil {
			s.listenOnce(ctx, l, statements)
		}
		if time.Since(began) >= listenedLong {
			failures = 1
		}
		_ = await.Sleep(ctx, backoff.HalfJitter(listenPause, maxListenPause, failures)) // the loop looks at ctx
	}
}

// listenOnce calls Listen on a goroutine of its own, because it may end that goroutine. It may also call notified after
// it has returned.
func (s *Store) listenOnce(ctx context.Context, l *listener, statements []string) {
	var notified atomic.Bool
	l.notified.Store(&notified)
	defer l.notified.Store(nil)
	var call sync.WaitGroup
	call.Go(func() {
		_ = s.cfg.Outbox.Listen(ctx, statements, func() {
			notified.Store(true)
			s.outbox.wakes.Wake(nil)
		})
	})
	call.Wait()
}
