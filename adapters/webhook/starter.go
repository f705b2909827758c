package webhook

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/usercode"
)

// starter calls Start of a driver.Starter until it has succeeded once. One call runs at a time, and the others wait for
// it.
type starter struct {
	starter driver.Starter // nil: there is nothing to start
	started atomic.Bool
	busy    chan struct{} // contains one element while a call runs
}

func newStarter(processor any) *starter {
	s := &starter{busy: make(chan struct{}, 1)}
	s.starter, _ = processor.(driver.Starter)
	return s
}

func (s *starter) start(ctx context.Context) error {
	if s.starter == nil || s.started.Load() {
		return nil
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.started.Load() {
		return nil
	}
	err := usercode.Err(fmt.Sprintf("%T.Start", s.starter), func() error { return s.starter.Start(ctx) })
	s.started.Store(err == nil)
	return err
}

// batches is a BatchProcessor with the other method that package deliver expects.
type batches struct{ driver.BatchProcessor }

func (b batches) Process(ctx context.Context, msg *consumer.Message) error {
	return b.ProcessBatch(ctx, []*consumer.Message{msg})[0]
}

// isNil reports a nil interface, or one that holds a nil pointer, map, function or channel.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}
