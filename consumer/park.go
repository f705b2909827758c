package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/aliases"
	"github.com/txonce/txonce/observe"
)

// park parks items[i], which failed with err, for v.Cause. It returns what follows, and the error to answer with. If
// the store keeps no dead letters, the item is rejected.
func (b *batch[TTx]) park(ctx context.Context, i int, v decide.Verdict, failed error) (decide.Verdict, error) {
	it := &b.items[i]
	p := &parking[TTx]{b: b, i: i, it: it, began: time.Now(), failed: failed}
	n := b.now(it)
	after := func(r decide.Parked) decide.Verdict {
		return decide.AfterPark(r, v, it.counted, b.c.memory.past(it.hash), n)
	}
	if b.c.letters.lot == nil {
		p.logGivenUp(ctx, "message rejected: the store keeps no dead letters", v.Cause)
		b.pass.outcome(i, MessageOutcome{Outcome: observe.Rejected, Cause: v.Cause, Key: it.rec.Key, Err: failed})
		b.fail(i, &rejectedError{failed}, v.Cause)
		return after(decide.NoLot), failed
	}
	// another process would take a message in doubt for a duplicate, so it must be parked
	limited := v.Cause != observe.CauseUnknown && !b.c.cfg.ParkLimit.Unlimited
	// after an error, writing the letter shows whether the database works
	p.stands = p.standsAlready(ctx, v.Cause)
	if limited && p.stands {
		// one more copy of a message that is parked already says nothing new about the handlers
		limited, it.failed = false, false
	}
	asked := aLetter
	if decide.BeforeHandlers(v.Cause, it.refused != nil) {
		asked = aRefusal
	}
	if limited {
		e := b.c.gate.admit(ctx, wish{what: asked, err: failed, about: append(it.attrs()[2:], "cause", v.Cause)})
		if e.wait > 0 {
			hold := after(decide.Limited)
			hold.After = e.wait
			return hold, fmt.Errorf("%w: %w", ErrParkLimit, failed)
		}
	}
	letter := b.pass.newLetter(ctx, it, v.Cause, failed.Error())
	result, err := p.write(ctx, &letter)
	if limited && result != decide.Written {
		b.c.gate.report(ctx, event{what: notWritten, unused: asked})
	}
	switch result {
	case decide.Written:
		p.parked(ctx, letter)
	case decide.Committed:
		it.done = true
		b.pass.outcome(i, MessageOutcome{Outcome: observe.Duplicate, Key: it.rec.Key})
	case decide.Free:
		b.c.memory.forgetDoubt(it.hash)
		if it.counted != nil && v.Cause == observe.CauseUnknown {
			// the transaction in doubt was rolled back, as that of any handler that fails
			failed = it.countedErr
		}
	case decide.Unstored:
		b.c.cfg.Logger.ErrorContext(ctx, "message cannot be parked, because the database refuses its dead letter: it is deferred, and other messages go on",
			append(it.attrs(), "error", err)...)
		failed = err
	case decide.KeyHeld, decide.Failed, decide.Limited, decide.NoLot:
		failed = err
	}
	return after(result), failed
}

// parking is an attempt to park one message.
type parking[TTx any] struct {
	b      *batch[TTx]
	i      int
	it     *item
	began  time.Time
	failed error // why it is parked
	stands bool  // its letter was there before
}

// parked records that the letter is committed.
func (p *parking[TTx]) parked(ctx context.Context, letter DeadLetter) {
	b, it := p.b, p.it
	it.done = true
	b.c.memory.forgetDoubt(it.hash)
	if p.stands { // its ERROR is logged already, when the letter was written
		attrs := append(it.attrs(), "cause", letter.Cause, "error", p.failed)
		b.c.cfg.Logger.WarnContext(ctx, "message parked again", append(attrs, aboutLetter(letter)...)...)
	} else {
		p.logGivenUp(ctx, "message parked", letter.Cause, aboutLetter(letter)...)
	}
	if b.c.memory.past(it.hash).Blamed { // the errors of the database were its own
		b.c.gate.report(ctx, event{what: committed, at: ofHandlers})
	}
	b.c.gate.report(ctx, event{what: committed, at: ofLetters})
	outcome := MessageOutcome{
		Outcome: observe.Parked, Cause: letter.Cause, Key: it.rec.Key, Err: p.failed,
		Letter: letter.ID,
	}
	b.pass.outcome(p.i, outcome)
	if it.parked = parkedAs(it, p.began, outcome); it.parked != nil {
		b.share(it.parked)
	}
}

// standsAlready reports whether the letter is there already, so that parking it again adds none. The letter of a trial,
// which begins before the handler runs, is not that.
func (p *parking[TTx]) standsAlready(ctx context.Context, cause observe.Cause) bool {
	found, _ := p.b.c.letters.lot.DeadLetters(ctx,
		DeadLetterFilter{ID: letterID(p.it), Consumer: p.b.c.cfg.Name, Limit: 1})
	return len(found) > 0 && (found[0].Cause != observe.CauseCrashed || cause == observe.CauseCrashed)
}

// write writes letter in a transaction that first claims the message's key. The claim shows whether an earlier COMMIT
// whose answer was lost has happened, and makes copies wait. It is removed in the same transaction, so that the message
// can still run.
func (p *parking[TTx]) write(ctx context.Context, letter *DeadLetter) (result decide.Parked, err error) {
	it, l := p.it, p.b.c.letters
	var recs []dedup.Record
	if it.rec.Key.ID != "" && !errors.Is(p.failed, dedup.ErrKeyCollision) {
		rec := it.rec
		rec.Time = time.Time{} // asks only whether it was committed, so it is never Unprovable
		recs = append(recs, rec)
	}
	err = l.storing(ctx, letter, func(letter *DeadLetter) (err error) {
		result, err = p.writeClaimed(ctx, recs, letter)
		return err
	})
	return l.notWritten(ctx, result, err), wrapPark(err)
}

func wrapPark(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("park: %w", err)
}

// writeClaimed makes one attempt of write, with the claims of recs.
func (p *parking[TTx]) writeClaimed(ctx context.Context, recs []dedup.Record,
	letter *DeadLetter,
) (result decide.Parked, err error) {
	b, it := p.b, p.it
	err = b.c.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		result = decide.Written
		doubt, doubtful := b.c.memory.doubt(it.hash)
		for _, claim := range claims { // at most one
			d := decide.Doubt{Any: doubtful, OwnEffect: doubt.ownEffect}
			if doubtful && claim.Verdict == dedup.Duplicate {
				if d.Maybe, err = doubt.mayBeCommitted(ctx, tx); err != nil {
					return err
				}
			}
			l := decide.OfLetter(letter.Cause, claim.Verdict, d, b.c.cfg.MismatchIsDuplicate)
			switch {
			case l.Cause == letter.Cause:
			case l.Cause == observe.CauseUnknown:
				letter.Error = doubt.err.Error() + "; then: " + letter.Error
			default:
				letter.Error = dedup.ErrMismatch.Error() + "; before: " + letter.Error
			}
			letter.Cause, result = l.Cause, l.Result
			if l.Forget {
				if err := b.c.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {
					return err
				}
			}
		}
		if result != decide.Written {
			return nil
		}
		return b.c.letters.parkIn(ctx, tx, *letter)
	})
	return result, err
}

// newLetter returns the letter of a message that is parked for cause; text is that of the error.
func (p *pass) newLetter(ctx context.Context, it *item, cause observe.Cause, text string) DeadLetter {
	letter := DeadLetter{ID: letterID(it), Record: it.rec, Message: *it.msg, Cause: cause, Error: text}
	letter.Message.Raw, letter.Message.Malformed, letter.Message.Attempt = nil, nil, max(it.msg.Attempt, 1)
	letter.Message.GiveUpAt = time.Time{} // a replay may be repeated
	letter.Message.Fingerprint = nil      // Record has it
	letter.Message.Aliases = nil          // headerAliases has them
	var ids []string
	recs, _ := aliasRecords(it.rec, it.msg.Aliases) // an alias that cannot be claimed is of no use
	for _, alias := range recs {
		ids = append(ids, alias.Key.ID)
	}
	letter.Message.Headers = withReserved(it.msg.Headers, map[string]string{
		headerParkedBy: p.parking(ctx), headerAliases: aliases.Join(ids), headerShortened: "",
	})
	return letter
}

// withReserved returns a copy of headers where the reserved headers have the given values; empty: none. A value that
// the message was delivered with does not stay: a replay would believe it.
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

// letterID hashes what identifies the item's dead letter. A test keeps it from changing; a change needs a new version
// in the hashed text.
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
func (p *parking[TTx]) logGivenUp(ctx context.Context, what string, cause observe.Cause, more ...any) {
	attrs := append(p.it.attrs(), "cause", cause, "attempts", max(p.it.msg.Attempt, 1), "error", p.failed)
	p.b.c.cfg.Logger.ErrorContext(ctx, what, append(attrs, more...)...)
}
