package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
)

// eachLetter calls f for each letter that filter chooses, newest first, until f returns false.
func eachLetter(ctx context.Context, s Store, filter consumer.DeadLetterFilter,
	f func(consumer.DeadLetter) bool,
) error {
	left := filter.Limit
	for {
		filter.Limit = pageSize
		if left > 0 {
			filter.Limit = min(left, pageSize)
		}
		page, err := s.DeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		for _, l := range page {
			if !f(l) {
				return nil
			}
		}
		if left > 0 {
			if left -= len(page); left == 0 {
				return nil
			}
		}
		if len(page) < filter.Limit {
			return nil
		}
		filter.After = page[len(page)-1].Cursor()
	}
}

const pageSize = 100

// CountLetters counts the letters that filter chooses, page by page. A Limit of 0 means all.
func CountLetters(ctx context.Context, s Store, filter consumer.DeadLetterFilter) (n int, err error) {
	err = eachLetter(ctx, s, filter, func(consumer.DeadLetter) bool { n++; return true })
	return n, err
}

// oldest returns the letters that filter chooses, oldest first, without their content. A filter.Limit counts from the
// oldest, so that letters that are parked meanwhile do not change which ones are chosen.
func oldest(ctx context.Context, s Store, filter consumer.DeadLetterFilter) (letters []consumer.DeadLetter, err error) {
	limit := filter.Limit
	filter.Limit = 0
	err = eachLetter(ctx, s, filter, func(l consumer.DeadLetter) bool {
		letters = append(letters, l.WithoutContent())
		return true
	})
	slices.Reverse(letters)
	if limit > 0 {
		letters = letters[:min(limit, len(letters))]
	}
	return letters, err
}

// DiscardLetters discards the letters that r.Filter chooses, oldest first, in this process, and records the action with
// one result for each. A Limit counts from the oldest. After an error or a crash some are discarded: the returned
// Action, or the action in the database, shows how many. Call it again for the others. r.Kind must be Discard.
func DiscardLetters(ctx context.Context, s Store, r Request) (Action, error) {
	if r.Kind != Discard {
		return Action{}, fmt.Errorf("ops: Request.Kind is %q, want discard", r.Kind)
	}
	if err := r.Validate(); err != nil {
		return Action{}, err
	}
	if bare := (consumer.DeadLetterFilter{Limit: r.Filter.Limit, After: r.Filter.After}); r.Filter == bare {
		return Action{}, errors.New("ops: discard: the filter has no condition and chooses the dead letters of all consumers: set Filter.Consumer or another field")
	}
	letters, err := oldest(ctx, s, r.Filter)
	if err != nil {
		return Action{}, err
	}
	if r.Expect >= 0 && len(letters) != r.Expect {
		return Action{}, fmt.Errorf("%w: %d match, %d are expected", ErrExpected, len(letters), r.Expect)
	}
	action, err := s.Request(ctx, r)
	if err != nil {
		return Action{}, err
	}
	note := "done"
	for _, l := range letters {
		if err = s.DiscardLetter(ctx, action.ID, l); err != nil && !errors.Is(err, consumer.ErrNotParked) {
			// else it is gone already
			note = "ended by an error: " + err.Error()
			break
		}
		err = nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	ended, endErr := s.End(end, action.ID, note)
	if endErr != nil {
		ended = action
	}
	return ended, errors.Join(err, endErr)
}

// endWithin limits the last step of an action that was interrupted.
const endWithin = 10 * time.Second
