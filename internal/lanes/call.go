package lanes

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/txonce/txonce/consumer"
)

// Call hands msgs to p: at once if it is a consumer.BatchProcessor, and else the only one there must be. It never panics, and has an
// answer for each message.
func Call(ctx context.Context, p consumer.Processor, msgs []*consumer.Message) (errs []error) {
	all := func(err error) []error {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
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
