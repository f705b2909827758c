package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// giveUp parks items[i], or has it rejected where there is no parking lot.
func (b *batch[TTx]) giveUp(ctx context.Context, i int, reason Reason, cause error) {
	it := &b.items[i]
	if b.lot == nil {
		b.log(ctx, it, "message rejected: the store keeps no dead letters", reason, cause)
		b.fail(i, &rejectedError{cause})
		return
	}
	// A message in doubt is parked also where the limit is spent: another process would take it for a duplicate.
	limited := reason != ReasonUnknown
	if wait := b.budgetWait(ctx, limited, it, reason, cause); wait > 0 {
		err := fmt.Errorf("%w: %w", ErrParkLimit, cause)
		b.cfg.Trace.emit(ctx, onPaused, Event{Consumer: b.cfg.Name, Message: it.msg, Err: err, Took: wait})
		b.retry(ctx, []int{i}, &RetryError{Err: err, After: wait, Uncounted: true})
		return
	}

	epoch := b.pause.now()
	letter := DeadLetter{ID: letterID(it), Record: it.rec, Message: *it.msg, Reason: reason, Cause: cause.Error()}
	letter.Message.Raw, letter.Message.Malformed, letter.Message.Attempt = nil, nil, max(it.msg.Attempt, 1)
	done, err := b.park(ctx, it, &letter, cause)
	if err == nil && done == parked {
		it.done = true
		b.doubts.over(it.derived)
		b.log(ctx, it, "message parked", letter.Reason, cause, "letter", letter.ID)
		b.cfg.Trace.emit(ctx, onParked, Event{Consumer: b.cfg.Name, Message: it.msg, Err: cause, Reason: letter.Reason, Took: time.Since(b.began)})
		return
	}
	if limited {
		b.budget.giveBack()
	}
	switch {
	case err == nil && done == settled:
		it.done = true
		b.trace(ctx, onDuplicate, it.msg, nil)
	case err == nil: // its key has become free: it is no mismatch any more, or was not claimed by the transaction that ended
		b.doubts.over(it.derived)
		b.retry(ctx, []int{i}, &RetryError{Err: cause, After: b.cfg.wait(1), Uncounted: true})
	case errors.Is(err, dedup.ErrInFlight):
		b.retry(ctx, []int{i}, &RetryError{Err: fmt.Errorf("park: %w", err), After: b.cfg.wait(b.deferrals + 1), Uncounted: true})
	default: // never a reject, which some brokers drop
		b.fault(ctx, []int{i}, epoch, fmt.Errorf("park: %w", err))
	}
}

// budgetWait takes a token of the parking limit, or says how long there is none.
func (b *batch[TTx]) budgetWait(ctx context.Context, limited bool, it *item, reason Reason, cause error) time.Duration {
	if !limited {
		return 0
	}
	return b.budget.take(ctx, cause, append(it.attrs()[2:], "reason", reason)...)
}

// parking is what came of the attempt to park a message.
type parking uint8

const (
	parked  parking = iota
	settled         // its effects turned out to be committed
	free            // nothing stands in its way any more
)

// park writes letter in a transaction that first claims the message's key. That settles whether an earlier COMMIT of
// unknown outcome has happened, and keeps copies away meanwhile; the claim is taken back in the same transaction, so that
// the message can still run.
func (b *batch[TTx]) park(ctx context.Context, it *item, letter *DeadLetter, cause error) (done parking, err error) {
	var recs []dedup.Record
	if it.rec.Key.ID != "" && !errors.Is(cause, dedup.ErrKeyCollision) {
		ask := it.rec
		ask.Time = time.Time{} // "did it commit?" and not "can we know?"
		recs = append(recs, ask)
	}
	err = b.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		done = parked
		doubt, doubtful := b.doubts.of(it.derived)
		for _, claim := range claims {
			switch claim.Verdict {
			case dedup.First:
				if letter.Reason == ReasonUnknown && doubt.ran {
					continue // what its handler wrote may stand without the claim, which keeps redeliveries from running
				}
				if err := b.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {
					return err
				}
				if letter.Reason == ReasonMismatch || letter.Reason == ReasonUnknown {
					done = free
				}
			case dedup.Mismatch:
				if letter.Reason == ReasonUnknown {
					continue
				}
				if letter.Reason != ReasonMismatch {
					letter.Cause = dedup.ErrMismatch.Error() + "; before: " + letter.Cause
				}
				letter.Reason = ReasonMismatch
				if b.cfg.OnMismatch == MismatchIsDuplicate {
					done = settled
				}
			default:
				stands, err := doubt.stands(ctx, tx)
				if err != nil {
					return err
				}
				if !doubtful || !stands {
					done = settled
				} else if letter.Reason != ReasonUnknown { // the claim says nothing; it stays, so that a redelivery does not run
					letter.Reason, letter.Cause = ReasonUnknown, doubt.cause.Error()+"; then: "+letter.Cause
				}
			}
		}
		if done != parked {
			return nil
		}
		return b.lot.Park(ctx, tx, *letter)
	})
	return done, err
}

// letterID is frozen by a test: a change of it is a new version in what is hashed.
func letterID(it *item) DeadLetterID {
	b := []byte("txonce letter 1")
	fields := []string{"key", it.rec.Key.Consumer, it.rec.Key.Tenant, it.rec.Key.ID}
	if it.rec.Key.ID == "" {
		fields = []string{"position", it.rec.Key.Consumer, it.msg.Topic, it.msg.Position}
	}
	for _, f := range fields {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	if it.rec.Key.ID == "" {
		b = binary.AppendVarint(b, it.msg.Time.Unix())
		b = binary.AppendVarint(b, int64(it.msg.Time.Nanosecond()))
	}
	payload := sha256.Sum256(it.msg.Payload)
	sum := sha256.Sum256(append(b, payload[:]...))
	return DeadLetterID(sum[:16])
}

// log is the one line about a message given up on.
func (b *batch[TTx]) log(ctx context.Context, it *item, what string, reason Reason, cause error, more ...any) {
	b.cfg.Logger.ErrorContext(ctx, what, append([]any{
		"consumer", b.cfg.Name, "reason", reason, "key", it.rec.Key.ID,
		"topic", it.msg.Topic, "position", it.msg.Position, "attempts", max(it.msg.Attempt, 1), "error", cause,
	}, more...)...)
}

// rejectedError is an error that is no RetryError, whatever the handler had asked for.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string        { return e.err.Error() }
func (e *rejectedError) Is(target error) bool { return errors.Is(e.err, target) }

func (e *rejectedError) As(target any) bool {
	if _, retry := target.(**RetryError); retry {
		return false
	}
	return errors.As(e.err, target)
}
