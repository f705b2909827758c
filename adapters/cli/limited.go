package cli

import (
	"context"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// limitedStore applies --timeout to each request of a function of package ops that makes many.
type limitedStore struct {
	ops.Store
	app       *app
	discarded func() // after each discarded letter
}

func (s limitedStore) Status(ctx context.Context) (ops.Status, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.Status(ctx)
}

func (s limitedKeys) Consumers(ctx context.Context) ([]ops.ConsumerStatus, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Keys.Consumers(ctx)
}

func (s limitedKeys) Waiting(ctx context.Context, letters []consumer.DeadLetterID) (map[consumer.DeadLetterID]bool, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Keys.Waiting(ctx, letters)
}

func (s limitedStore) DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.DeadLetters(ctx, filter)
}

func (s limitedStore) DiscardLetter(ctx context.Context, action ops.ActionID, letter consumer.DeadLetter) error {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	err := s.Store.DiscardLetter(ctx, action, letter)
	if err == nil {
		s.discarded()
	}
	return err
}

func (s limitedStore) Request(ctx context.Context, r ops.Request) (ops.Action, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.Request(ctx, r)
}

func (s limitedStore) Actions(ctx context.Context, filter ops.ActionFilter) ([]ops.Action, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.Actions(ctx, filter)
}

func (s limitedStore) Results(ctx context.Context, filter ops.ResultFilter) ([]ops.Result, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Store.Results(ctx, filter)
}

func (s limitedStore) Keys() ops.Keys { return limitedKeys{s.Store.Keys(), s.app} }

// limitedKeys is limitedStore for keys.
type limitedKeys struct {
	ops.Keys
	app *app
}

func (s limitedKeys) Claimed(ctx context.Context, keys []dedup.Key) (map[dedup.Key]dedup.Fingerprint, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Keys.Claimed(ctx, keys)
}
