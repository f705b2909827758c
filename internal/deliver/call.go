package deliver

import (
	"context"
	"fmt"
	"slices"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/usercode"
)

// Call hands msgs to p: together if p is a driver.BatchProcessor; otherwise msgs must hold exactly one message. It
// returns one error per message, which is safe to use, and never panics: a panic, or a wrong number of answers, is the
// error of every message. So is the end of the goroutine (runtime.Goexit, or FailNow of a test); p therefore runs on a
// goroutine of its own.
func Call(ctx context.Context, p consumer.Processor, msgs []*consumer.Message) (errs []error) {
	var answers []error
	ended := usercode.Run(func() { answers = call(ctx, p, msgs) })
	var err error
	switch {
	case ended != nil && ended.Value != nil:
		err = &consumer.PanicError{Value: ended.Value, Stack: ended.Stack}
	case ended != nil:
		err = ended.Of(fmt.Sprintf("%T", p))
	case len(answers) != len(msgs):
		err = fmt.Errorf("%T.ProcessBatch gave %d answers for %d messages", p, len(answers), len(msgs))
	default:
		errs = make([]error, len(msgs)) // p may keep its slice
		for i, err := range answers {
			errs[i] = usercode.Error(err)
		}
		return errs
	}
	return slices.Repeat([]error{usercode.Error(err)}, len(msgs))
}

func call(ctx context.Context, p consumer.Processor, msgs []*consumer.Message) []error {
	if batches, ok := p.(driver.BatchProcessor); ok {
		return batches.ProcessBatch(ctx, msgs)
	}
	return []error{p.Process(ctx, msgs[0])}
}
