package cli

import (
	"context"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

// limitedStore applies --timeout to each page of letters and to each discarded letter, because there may be many.
type limitedStore struct {
	ops.Store
	app *app
}

func (s limitedStore) DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.DeadLetters(ctx, filter)
}

func (s limitedStore) DiscardLetter(ctx context.Context, action ops.ActionID, letter consumer.DeadLetter) error {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.DiscardLetter(ctx, action, letter)
}
