package cli

import (
	"context"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// within calls f with a context that ends after --timeout.
func within[A, T any](ctx context.Context, a *app, f func(ctx context.Context, arg A) (T, error), arg A) (T, error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	return f(ctx, arg)
}

// limitedStore applies --timeout to each request of a function of package ops that makes many.
type limitedStore struct {
	ops.Store
	app     *app
	changed func(n int) // after n letters or messages were discarded or unparked
}

func (s limitedStore) DeadLetters(ctx context.Context,
	filter consumer.DeadLetterFilter,
) ([]consumer.DeadLetter, error) {
	return within(ctx, s.app, s.Store.DeadLetters, filter)
}

func (s limitedStore) DiscardLetter(ctx context.Context, action ops.ActionID, letter consumer.DeadLetter) error {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	err := s.Store.DiscardLetter(ctx, action, letter)
	if err == nil {
		s.changed(1)
	}
	return err
}

func (s limitedStore) Request(ctx context.Context, r ops.Request) (ops.Action, error) {
	return within(ctx, s.app, s.Store.Request, r)
}

func (s limitedStore) Keys() ops.Keys { return limitedKeys{s.Store.Keys(), s.app} }

func (s limitedStore) Outbox() outbox.Operations { return limitedOutbox{s.Store.Outbox(), s} }

// limitedOutbox is limitedStore for the outbox.
type limitedOutbox struct {
	outbox.Operations
	store limitedStore
}

func (o limitedOutbox) Parked(ctx context.Context, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return within(ctx, o.store.app, o.Operations.Parked, filter)
}

func (o limitedOutbox) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return o.change(ctx, o.Operations.Unpark, seqs)
}

func (o limitedOutbox) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.change(ctx, o.Operations.Discard, seqs)
}

func (o limitedOutbox) change(ctx context.Context, f func(context.Context, ...int64) (int, error),
	seqs []int64,
) (int, error) {
	ctx, cancel := o.store.app.limit(ctx)
	defer cancel()
	n, err := f(ctx, seqs...)
	o.store.changed(n)
	return n, err
}

// limitedKeys is limitedStore for keys.
type limitedKeys struct {
	ops.Keys
	app *app
}

func (s limitedKeys) Consumers(ctx context.Context) ([]ops.ConsumerStatus, error) {
	ctx, cancel := s.app.limit(ctx)
	defer cancel()
	return s.Keys.Consumers(ctx)
}

func (s limitedKeys) Waiting(ctx context.Context, letters []consumer.DeadLetterID) (map[consumer.DeadLetterID]bool, error) {
	return within(ctx, s.app, s.Keys.Waiting, letters)
}

func (s limitedKeys) Claimed(ctx context.Context, keys []dedup.Key) (map[dedup.Key]dedup.Fingerprint, error) {
	return within(ctx, s.app, s.Keys.Claimed, keys)
}
