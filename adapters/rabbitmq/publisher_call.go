package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/outbox"
)

// answersOf ends the call of these records: nil stands for a message that was never sent and has its error in errs. What is still
// open gets the reason why the call ends before the server has answered.
func answersOf(ctx context.Context, records []*record, errs []error) []error {
	for i, r := range records {
		if r != nil {
			if r.open() {
				r.answer(unconfirmed(ctx))
			}
			errs[i] = r.err
		}
	}
	return errs
}

// unconfirmed is the answer to a message that may have arrived or not when its call ends.
func unconfirmed(ctx context.Context) error {
	if ctx.Err() == nil {
		return errClosed()
	}
	why := context.Cause(ctx)
	err := fmt.Errorf("rabbitmq: not confirmed; the message may have arrived: %w", why)
	if errors.Is(ctx.Err(), context.Canceled) { // the relay stops, which is nobody's fault
		return err
	}
	return &outbox.UnavailableError{Err: err}
}
