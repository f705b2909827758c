package consumer

import (
	"context"
	"errors"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
)

// letters writes dead letters.
type letters[TTx any] struct {
	store    dedup.Store[TTx]
	lot      parkingLot[TTx] // nil: messages that are given up are rejected
	classify classifier
}

// notWritten returns the result of a transaction that was to write a letter, and ended with err.
func (l *letters[TTx]) notWritten(ctx context.Context, result decide.Parked, err error) decide.Parked {
	switch {
	case err == nil:
		return result
	case errors.Is(err, dedup.ErrInFlight):
		return decide.KeyHeld
	case l.classify.refusesLetter(ctx, err):
		return decide.Unstored
	}
	return decide.Failed
}

// parkIn writes letter as part of tx. Its error shows that the letter is to blame, if it is.
func (l *letters[TTx]) parkIn(ctx context.Context, tx TTx, letter DeadLetter) error {
	if err := l.lot.Park(ctx, tx, letter); err != nil {
		return letterError{err}
	}
	return nil
}

// storing calls store, which parks the letter that it gets in a transaction of its own. While the database refuses the
// letter, storing calls store with a shorter one. After that, letter is the one that store got last.
func (l *letters[TTx]) storing(ctx context.Context, letter *DeadLetter, store func(letter *DeadLetter) error) error {
	whole := *letter
	err := store(letter)
	for _, to := range shorter {
		if err == nil || !l.classify.refusesLetter(ctx, err) ||
			!errors.As(err, new(letterError)) && !l.classify.refusesData(err) {
			return err
		}
		if short, changed := shortened(whole, to, err); changed {
			*letter = short
			err = store(letter)
		}
	}
	return err
}

// parkAgain parks letter in a transaction of its own with the claims of recs, whatever they answer.
func (l *letters[TTx]) parkAgain(ctx context.Context, recs []dedup.Record, letter DeadLetter) error {
	return l.storing(ctx, &letter, func(letter *DeadLetter) error {
		return l.store.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error { return l.parkIn(ctx, tx, *letter) })
	})
}
