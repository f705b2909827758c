package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// UnparkAll unparks the messages that filter selects, oldest first, and returns their number. After a crash or an error
// some are unparked; call it again. Messages that wait behind an unparked one become pending too, whether filter
// selects them or not.
func UnparkAll(ctx context.Context, of Operations, filter ParkedFilter) (int, error) {
	seqs, err := selected(ctx, of, filter)
	if err != nil {
		return 0, fmt.Errorf("outbox: unpark: %w", err)
	}
	return inParts(ctx, seqs, of.Unpark)
}

// DiscardAll deletes the messages that filter selects, and returns their number. After a crash or an error some are
// deleted; call it again. Messages that wait behind a deleted one and are not selected become pending. A filter without
// any condition is refused: name the topic, the key, the error or a time.
func DiscardAll(ctx context.Context, of Operations, filter ParkedFilter) (int, error) {
	if bare := (ParkedFilter{After: filter.After, Limit: filter.Limit}); filter == bare {
		return 0, errors.New("outbox: discard: the filter has no condition and selects all parked messages: set Topic, Key, Error, Since or Until")
	}
	seqs, err := selected(ctx, of, filter)
	if err != nil {
		return 0, fmt.Errorf("outbox: discard: %w", err)
	}
	slices.Reverse(seqs) // a message waits behind one with a lower seq, whose deletion would make it pending
	return inParts(ctx, seqs, of.Discard)
}

const (
	selectAtOnce = 100 // messages with their payloads
	changeAtOnce = 100
)

// selected returns the seqs of the messages that filter selects, in their order.
func selected(ctx context.Context, of Operations, filter ParkedFilter) (seqs []int64, err error) {
	left := filter.Limit
	for {
		if filter.Limit = selectAtOnce; left > 0 {
			filter.Limit = min(left-len(seqs), selectAtOnce)
		}
		page, err := of.Parked(ctx, filter)
		if err != nil {
			return nil, err
		}
		for i := range page {
			seqs = append(seqs, page[i].Seq)
		}
		if len(page) < filter.Limit || len(seqs) == left {
			return seqs, nil
		}
		filter.After = seqs[len(seqs)-1]
	}
}

func inParts(ctx context.Context, seqs []int64, change func(context.Context, ...int64) (int, error)) (n int, err error) {
	for part := range slices.Chunk(seqs, changeAtOnce) {
		changed, err := change(ctx, part...)
		if n += changed; err != nil {
			return n, err
		}
	}
	return n, nil
}
