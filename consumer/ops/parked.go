package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
)

// ParkedChoice are the parked messages of the outbox that a filter chose at one moment.
type ParkedChoice struct {
	Seqs []int64 // ascending

	// Newest is when the last of these messages was parked. The same filter with Until set to one microsecond after
	// Newest does not choose messages that are parked later.
	Newest time.Time

	More bool // there are more messages than ChooseParked's limit
}

// ChooseParked chooses parked messages, and changes nothing. most limits how many messages it reads; 0: no limit.
func ChooseParked(ctx context.Context, s Store, filter outbox.ParkedFilter, most int) (c ParkedChoice, err error) {
	left := filter.Limit
	for {
		if filter.Limit = pageSize; left > 0 {
			filter.Limit = min(left-len(c.Seqs), pageSize)
		}
		page, err := s.Outbox().Parked(ctx, filter)
		if err != nil {
			return c, err
		}
		for i := range page {
			if most > 0 && len(c.Seqs) == most {
				c.More = true
				return c, nil
			}
			c.Seqs = append(c.Seqs, page[i].Seq)
			if page[i].ParkedAt.After(c.Newest) {
				c.Newest = page[i].ParkedAt
			}
		}
		if len(page) < filter.Limit || len(c.Seqs) == left {
			return c, nil
		}
		filter.After = c.Seqs[len(c.Seqs)-1]
	}
}

// ChangeParked unparks or discards the parked messages that filter chooses, and records it: see ChangeMessages. If
// r.Expect is not negative and filter chooses another number of messages, it changes nothing and fails with
// ErrExpected. If filter chooses nothing, nothing is recorded.
//
// To leave out messages that were parked after the operator looked at them, set filter.Until: see ParkedChoice.Newest.
func ChangeParked(ctx context.Context, s Store, r Request,
	filter outbox.ParkedFilter,
) (action Action, n int, err error) {
	bare := filter == outbox.ParkedFilter{Until: filter.Until, After: filter.After, Limit: filter.Limit}
	if r.Kind == DiscardOutbox && bare {
		return Action{}, 0, errors.New("ops: discard: the filter has no condition but a time and would delete all parked messages: set Topic, Key, Cause or Since")
	}
	r.Note = DescribeParked(filter)
	if err := r.Validate(); err != nil {
		return Action{}, 0, err
	}
	chosen, err := ChooseParked(ctx, s, filter, 0)
	if err != nil {
		return Action{}, 0, err
	}
	if r.Expect >= 0 && len(chosen.Seqs) != r.Expect {
		return Action{}, 0, fmt.Errorf("%w: %d parked messages match, %d are expected", ErrExpected, len(chosen.Seqs),
			r.Expect)
	}
	if len(chosen.Seqs) == 0 {
		return Action{}, 0, nil
	}
	return ChangeMessages(ctx, s, r, chosen.Seqs)
}

// ChangeMessages unparks or discards the parked messages with these numbers, and records it. r.Kind is Unpark, Answer
// or DiscardOutbox; r.Note says which messages were chosen. It returns how many messages it changed: those that are not
// parked any more when their turn comes are left out.
//
// The action is recorded first, so that no change is without a record. The record does not say how many messages were
// changed, or that the change failed: both are told to the caller only. After an error or a crash some messages are
// changed. Call it again for the others.
func ChangeMessages(ctx context.Context, s Store, r Request, seqs []int64) (action Action, n int, err error) {
	change := s.Outbox().Unpark
	switch r.Kind {
	case Unpark, Answer:
	case DiscardOutbox:
		change, seqs = s.Outbox().Discard, slices.Sorted(slices.Values(seqs))
		slices.Reverse(seqs) // a message may wait behind one with a lower number, whose deletion would make it pending
	default:
		return Action{}, 0, fmt.Errorf("ops: Request.Kind is %q, want unpark, answer or discard_outbox", r.Kind)
	}
	if action, err = s.Request(ctx, r); err != nil {
		return Action{}, 0, err
	}
	for some := range slices.Chunk(seqs, pageSize) {
		in, err := change(ctx, some...)
		if n += in; err != nil {
			return action, n, err
		}
	}
	return action, n, nil
}

// DescribeParked names the conditions of a filter in words, for Request.Note.
func DescribeParked(f outbox.ParkedFilter) string {
	text := "parked messages of the outbox"
	add := func(name, value string) {
		if value != "" {
			text += fmt.Sprintf(", %s %q", name, value)
		}
	}
	add("topic", f.Topic)
	add("key", f.OrderingKey)
	add("error", f.Error)
	if !f.Since.IsZero() {
		add("since", f.Since.UTC().String())
	}
	if !f.Until.IsZero() {
		add("until", f.Until.UTC().String())
	}
	if f.Limit > 0 {
		text += fmt.Sprintf(", limit %d", f.Limit)
	}
	return text
}
