package publishing

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/outbox"
)

// BatchError refuses several messages at once. At least one of them is at fault, and the broker does not say which. Err
// is the answer to a message that is refused by itself.
type BatchError struct{ Err error }

func (e *BatchError) Error() string { return e.Err.Error() }
func (e *BatchError) Unwrap() error { return e.Err }

// Ended is the answer to a message whose call ended too early. It says what was not finished, and why ctx ended. When
// the relay stopped, it is a plain error; when the time was up, the broker did not answer in time.
func Ended(ctx context.Context, what string) error {
	if ctx.Err() == nil {
		return fmt.Errorf("%s: the publisher gave no answer", what)
	}
	err := fmt.Errorf("%s: %w", what, context.Cause(ctx))
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return &outbox.UnavailableError{Err: err}
}
