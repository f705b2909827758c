package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/aliases"
	"github.com/txonce/txonce/observe"
)

// parkOrReject parks items[i]. If the store keeps no dead letters, the item is rejected.
func (b *batch[TTx]) parkOrReject(ctx context.Context, i int, cause observe.Cause, failed error) {
	it := &b.items[i]
	if b.c.lot == nil {
		b.logGivenUp(ctx, it, "message rejected: the store keeps no dead letters", cause, failed)
		b.pass.outcome(i, MessageOutcome{Outcome: observe.Rejected, Cause: cause, Key: it.rec.Key, Err: failed})
		b.fail(i, &rejectedError{failed}, cause)
		return
	}
	began, epoch := time.Now(), b.c.pause.epoch()
	limited := cause != observe.CauseUnknown && !b.c.cfg.ParkLimit.Unlimited // another process would take a message in doubt for a duplicate, so it must be parked
	stands, _ := b.stands(ctx, it, cause)                                    // after an error, writing the letter shows whether the database works
	if limited && stands {                                                   // one more copy of a message that is parked already says nothing new about the handlers
		limited, it.failed = false, false
	}
	take, giveBack := b.c.budget.take, b.c.budget.giveBack
	if beforeHandlers(it, cause) {
		take, giveBack = b.c.refusals.take, b.c.refusals.giveBack
	}
	if limited {
		if wait := take(ctx, failed, append(it.attrs()[2:], "cause", cause)...); wait > 0 {
			err := fmt.Errorf("%w: %w", ErrParkLimit, failed)
			b.retry([]int{i}, &RetryError{Err: err, After: wait, Held: true}, observe.CauseBudget)
			return
		}
	}

	letter := b.newLetter(ctx, it, cause, failed.Error())
	result, err := b.park(ctx, it, &letter, failed)
	if limited && (err != nil || result != parked) {
		giveBack()
	}
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		b.retry([]int{i}, &RetryError{Err: fmt.Errorf("park: %w", err), After: b.c.cfg.backoff(b.options.deferrals + 1), Held: true}, observe.CauseInFlight)
	case err != nil: // never a reject, because some brokers drop a rejected message
		b.parkFailed(ctx, i, epoch, fmt.Errorf("park: %w", err))
	case result == parked:
		it.done = true
		b.c.doubts.forget(it.hash)
		if stands { // its ERROR is logged already, when the letter was written
			attrs := append(it.attrs(), "cause", letter.Cause, "error", failed)
			b.c.cfg.Logger.WarnContext(ctx, "message parked again", append(attrs, aboutLetter(letter)...)...)
		} else {
			b.logGivenUp(ctx, it, "message parked", letter.Cause, failed, aboutLetter(letter)...)
		}
		if b.c.history.past(it.hash).blamed { // the errors of the database were its own
			b.c.pause.recovered(ctx, ofHandlers)
		}
		b.c.pause.recovered(ctx, ofLetters)
		outcome := MessageOutcome{Outcome: observe.Parked, Cause: letter.Cause, Key: it.rec.Key, Err: failed, Letter: letter.ID}
		b.pass.outcome(i, outcome)
		if it.parked = parkedAs(it, began, outcome); it.parked != nil {
			b.share(it.parked)
		}
	case result == wasCommitted:
		it.done = true
		b.pass.outcome(i, MessageOutcome{Outcome: observe.Duplicate, Key: it.rec.Key})
	default:
		b.c.doubts.forget(it.hash)
		if cause == observe.CauseUnknown && it.counted != nil { // the transaction in doubt was rolled back, as that of any handler that fails
			b.parkOrRetry(ctx, i)
			return
		}
		b.retry([]int{i}, &RetryError{Err: failed, After: b.c.cfg.backoff(1), Held: true}, cause)
	}
}

// stands reports whether the letter of it is there already, so that parking it again adds none. The letter of a trial, which begins before
// the handler runs, is not that.
func (b *batch[TTx]) stands(ctx context.Context, it *item, cause observe.Cause) (bool, error) {
	found, err := b.c.lot.DeadLetters(ctx, DeadLetterFilter{ID: letterID(it), Consumer: b.c.cfg.Name, Limit: 1})
	return len(found) > 0 && (found[0].Cause != observe.CauseCrashed || cause == observe.CauseCrashed), err
}

// parkResult is the result of an attempt to park a message.
type parkResult uint8

const (
	parked       parkResult = iota
	wasCommitted            // its effects turned out to be committed
	mayRun                  // its key turned out to be free: it is not a mismatch any more, or the transaction in doubt was rolled back
)

// park writes letter in a transaction that first claims the message's key. The claim shows whether an earlier COMMIT whose
// answer was lost has happened, and makes copies wait. It is removed in the same transaction, so that the message can still
// run.
func (b *batch[TTx]) park(ctx context.Context, it *item, letter *DeadLetter, failed error) (result parkResult, err error) {
	var recs []dedup.Record
	if it.rec.Key.ID != "" && !errors.Is(failed, dedup.ErrKeyCollision) {
		rec := it.rec
		rec.Time = time.Time{} // asks only whether it was committed, so it is never Unprovable
		recs = append(recs, rec)
	}
	err = b.c.storing(ctx, letter, func(letter *DeadLetter) (err error) {
		result, err = b.parkClaimed(ctx, it, recs, letter)
		return err
	})
	return result, err
}

// parkClaimed makes one attempt of park, with the claims of recs.
func (b *batch[TTx]) parkClaimed(ctx context.Context, it *item, recs []dedup.Record, letter *DeadLetter) (result parkResult, err error) {
	err = b.c.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		result = parked
		doubt, doubtful := b.c.doubts.of(it.hash)
		for _, claim := range claims {
			switch claim.Verdict {
			case dedup.First:
				if letter.Cause == observe.CauseUnknown && doubt.ownEffect {
					continue // its effects may be committed without the claim, so the claim stays and keeps redeliveries from running
				}
				if err := b.c.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {
					return err
				}
				if letter.Cause == observe.CauseMismatch || letter.Cause == observe.CauseUnknown {
					result = mayRun
				}
			case dedup.Mismatch:
				if letter.Cause == observe.CauseUnknown {
					continue
				}
				if letter.Cause != observe.CauseMismatch {
					letter.Error = dedup.ErrMismatch.Error() + "; before: " + letter.Error
				}
				letter.Cause = observe.CauseMismatch
				if b.c.cfg.OnMismatch == MismatchIsDuplicate {
					result = wasCommitted
				}
			default:
				maybe, err := doubt.mayBeCommitted(ctx, tx)
				if err != nil {
					return err
				}
				if !doubtful || !maybe {
					result = wasCommitted
				} else if letter.Cause != observe.CauseUnknown { // the claim proves nothing; it stays, so that a redelivery does not run
					letter.Cause, letter.Error = observe.CauseUnknown, doubt.err.Error()+"; then: "+letter.Error
				}
			}
		}
		if result != parked {
			return nil
		}
		return b.c.parkIn(ctx, tx, *letter)
	})
	return result, err
}

func (b *batch[TTx]) newLetter(ctx context.Context, it *item, cause observe.Cause, text string) DeadLetter {
	letter := DeadLetter{ID: letterID(it), Record: it.rec, Message: *it.msg, Cause: cause, Error: text}
	letter.Message.Raw, letter.Message.Malformed, letter.Message.Attempt = nil, nil, max(it.msg.Attempt, 1)
	letter.Message.GiveUpAt = time.Time{} // a replay may be repeated
	letter.Message.Fingerprint = nil      // Record has it
	letter.Message.Aliases = nil          // HeaderAliases has them
	var ids []string
	recs, _ := aliasRecords(it.rec, it.msg.Aliases) // an alias that cannot be claimed is of no use
	for _, alias := range recs {
		ids = append(ids, alias.Key.ID)
	}
	letter.Message.Headers = withReserved(it.msg.Headers, map[string]string{HeaderParkedBy: b.pass.parking(ctx), HeaderAliases: aliases.Join(ids), HeaderShortened: ""})
	return letter
}

// withReserved returns a copy of headers where the reserved headers have the given values; empty: none. A value that the message was delivered
// with does not stay: a replay would believe it.
func withReserved(headers, reserved map[string]string) map[string]string {
	headers = maps.Clone(headers)
	for name, value := range reserved {
		switch {
		case value == "":
			delete(headers, name)
		case headers == nil:
			headers = map[string]string{name: value}
		default:
			headers[name] = value
		}
	}
	return headers
}

// letterID hashes what identifies the item's dead letter. A test keeps it from changing; a change needs a new version in the
// hashed text.
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

// logGivenUp writes the one ERROR line about a message that is given up.
func (b *batch[TTx]) logGivenUp(ctx context.Context, it *item, what string, cause observe.Cause, err error, more ...any) {
	attrs := append(it.attrs(), "cause", cause, "attempts", max(it.msg.Attempt, 1), "error", err)
	b.c.cfg.Logger.ErrorContext(ctx, what, append(attrs, more...)...)
}
