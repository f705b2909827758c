package publishing_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/publishing"
)

var (
	errClosed = errors.New("closed")
	errDial   = errors.New("dial")
)

// client is the client in the tests' pools.
type client struct {
	name     int
	broken   atomic.Bool
	cut      atomic.Bool
	repaired bool // by Open
}

// poolEnv is a pool of clients that take a second to open.
type poolEnv struct {
	*testing.T
	publishing.Pool[*client]
	opened int
	fails  bool
	repair bool
}

func pooled(t *testing.T, do func(e *poolEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &poolEnv{T: t}
		e.Pool = publishing.Pool[*client]{
			Open: func(life context.Context, old *client) (*client, error) {
				<-time.After(time.Second)
				if e.fails {
					return nil, errDial
				}
				if old != nil && e.repair {
					old.repaired = true
					old.broken.Store(false)
					return old, nil
				}
				e.opened++
				return &client{name: e.opened}, nil
			},
			Usable:   func(c *client) bool { return !c.broken.Load() },
			Cut:      func(c *client) { c.cut.Store(true) },
			Closed:   errClosed,
			Unopened: func(err error) error { return fmt.Errorf("not sent: %w", err) },
		}
		do(e)
		e.Close()
	})
}

func (e *poolEnv) acquire() *publishing.Client[*client] {
	e.Helper()
	c, err := e.Acquire(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return c
}

// Messages of ended calls must not be sent later, and a client that other calls still wait for must not be cut.
func TestPoolCutsAfterTheLastCall(t *testing.T) {
	pooled(t, func(e *poolEnv) {
		first, second := e.acquire(), e.acquire()
		if first != second || e.opened != 1 {
			e.Errorf("%d clients opened for two calls", e.opened)
		}
		e.Release(first, true)
		synctest.Wait()
		if second.C.cut.Load() {
			e.Error("a client was cut that a call uses")
		}
		third := e.acquire()
		if third == second {
			e.Error("a broken client takes another call")
		}
		e.Release(second, false)
		synctest.Wait()
		if !second.C.cut.Load() || third.C.cut.Load() {
			e.Errorf("broken client cut: %v; the one in its place: %v", second.C.cut.Load(), third.C.cut.Load())
		}
		e.Release(third, false)
		if again := e.acquire(); again != third {
			e.Error("a client that works was not used again")
		} else {
			e.Release(again, false)
		}
	})
}

func TestPoolReplacesWhatIsNotUsable(t *testing.T) {
	for _, repair := range []bool{false, true} {
		pooled(t, func(e *poolEnv) {
			e.repair = repair
			first := e.acquire()
			first.C.broken.Store(true)
			second := e.acquire()
			if (second == first) != repair || first.C.repaired != repair {
				e.Errorf("repaired: %v, want %v", second == first, repair)
			}
			e.Release(first, false)
			synctest.Wait()
			if first.C.cut.Load() == repair {
				e.Errorf("cut: %v, repaired: %v", first.C.cut.Load(), repair)
			}
			e.Release(second, false)
		})
	}
}

// A call waits no longer than its context. The client that it did not wait for serves the next call.
func TestPoolOpensInTheBackground(t *testing.T) {
	pooled(t, func(e *poolEnv) {
		ctx, cancel := context.WithTimeout(e.Context(), time.Millisecond)
		defer cancel()
		if _, err := e.Acquire(ctx); !unavailable(err) || !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("after the deadline: %v", err)
		}
		stopped, stop := context.WithCancel(e.Context())
		stop()
		if _, err := e.Acquire(stopped); err == nil || unavailable(err) {
			e.Errorf("when the relay stops: %v", err)
		}
		e.Release(e.acquire(), true)
		if e.opened != 1 {
			e.Errorf("%d clients opened for three calls", e.opened)
		}
		e.fails = true
		if _, err := e.Acquire(e.Context()); !unavailable(err) || !errors.Is(err, errDial) {
			e.Errorf("when Open fails: %v", err)
		}
	})
}

func TestPoolClose(t *testing.T) {
	pooled(t, func(e *poolEnv) {
		used := e.acquire()
		life := e.Life()
		go func() {
			<-life.Done()
			<-time.After(time.Second)
			e.Release(used, false)
		}()
		used.C.broken.Store(true) // so that another one is being opened
		waiting := make(chan error)
		go func() {
			_, err := e.Acquire(context.WithoutCancel(e.Context()))
			waiting <- err
		}()
		synctest.Wait()
		began := time.Now()
		e.Close()
		if took := time.Since(began); took != time.Second || !used.C.cut.Load() {
			e.Errorf("Close took %v, the client is cut: %v", took, used.C.cut.Load())
		}
		for _, err := range []error{<-waiting, e.Failed(nil)} {
			if !unavailable(err) || !errors.Is(err, errClosed) {
				e.Errorf("after Close: %v", err)
			}
		}
		if _, err := e.Acquire(e.Context()); !errors.Is(err, errClosed) || e.opened != 2 {
			e.Errorf("after Close: %v, %d clients opened", err, e.opened)
		}
	})
	pooled(t, func(e *poolEnv) {
		e.Close()
		if _, err := e.Acquire(e.Context()); !errors.Is(err, errClosed) {
			e.Errorf("closed without use: %v", err)
		}
	})
}

func TestBackground(t *testing.T) {
	pooled(t, func(e *poolEnv) {
		var discarded atomic.Int64
		open := func() (int, error) {
			<-time.After(time.Minute)
			return 1, nil
		}
		inUse := e.acquire()
		defer e.Release(inUse, false)
		ask := func(within time.Duration) (int, error) {
			ctx, cancel := context.WithTimeout(e.Context(), within)
			defer cancel()
			return publishing.Background(ctx, &e.Pool, open, func(n int) { discarded.Add(int64(n)) })
		}
		if n, err := ask(time.Second); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("%d, %v before there is a result", n, err)
		}
		<-time.After(time.Hour)
		if n, err := ask(time.Hour); n != 1 || err != nil || discarded.Load() != 1 {
			e.Errorf("%d, %v, %d discarded", n, err, discarded.Load())
		}
	})
}
