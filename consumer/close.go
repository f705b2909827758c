package consumer

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/txonce/txonce/dedup"
)

// ErrClosed is what a Consumer answers after Close.
var ErrClosed = errors.New("consumer: closed")

// Close gives Config.Name back to the Store, where that is a dedup.Releaser, so that another Consumer of that name can be made on it, as
// after a change of configuration. It waits for a Start in progress, but not for messages in progress: those are finished and
// committed as ever, and a new Consumer of the name meets their keys in flight, as it would another node's. Stop the Subscriber first.
// What is delivered after Close is not handled: Process and ProcessBatch answer it with a *RetryError that is ErrClosed, so that the source
// delivers it again; Start, Replay and Discard return ErrClosed. The Store is not closed. Close is safe for concurrent
// use, and does nothing when it is called again.
func (c *Consumer[TTx]) Close() {
	if c.closed.Swap(true) {
		return
	}
	c.starting <- struct{}{} // whoever starts meanwhile has the name, or will see that the Consumer is closed
	defer func() { <-c.starting }()
	if releaser, ok := c.cfg.Store.(dedup.Releaser); ok && c.started.Load() {
		releaser.Release(c.cfg.Name)
	}
}

func (c *Consumer[TTx]) errClosed() error {
	if c.closed.Load() {
		return fmt.Errorf("consumer %q: %w", c.cfg.Name, ErrClosed)
	}
	return nil
}

// isNil reports a nil pointer, map, function or channel in an interface that is not nil itself.
func isNil(v any) bool {
	if v == nil {
		return false // Config says so
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}
