package deliver

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/isolated"
)

// Call hands msgs to p: together if p is a consumer.BatchProcessor; otherwise msgs must hold exactly one message. It returns one error
// per message and never panics: a panic, or a wrong number of answers, is the error of every message. So is the end of the goroutine
// (runtime.Goexit, or FailNow of a test); p therefore runs on a goroutine of its own.
func Call(ctx context.Context, p consumer.Processor, msgs []*consumer.Message) (errs []error) {
	all := func(err error) []error {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if !isolated.Call(func() { errs = call(ctx, p, msgs, all) }) {
		return all(fmt.Errorf("%T ended its goroutine instead of answering: it called runtime.Goexit, or FailNow of a test", p))
	}
	return errs
}

func call(ctx context.Context, p consumer.Processor, msgs []*consumer.Message, all func(error) []error) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			errs = all(&consumer.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	batches, ok := p.(consumer.BatchProcessor)
	if !ok {
		return []error{p.Process(ctx, msgs[0])}
	}
	if errs = batches.ProcessBatch(ctx, msgs); len(errs) != len(msgs) {
		return all(fmt.Errorf("%T.ProcessBatch gave %d answers for %d messages", p, len(errs), len(msgs)))
	}
	return errs
}
