package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// settleLetter removes a letter as part of tx. ran says that its message is processed in tx, and not before. It is
// called after the handler, so that a handler that commits the transaction by itself removes no letter.
type settleLetter[TTx any] func(ctx context.Context, tx TTx, ran bool) error

// replaying is one attempt to process the message of a letter.
type replaying[TTx any] struct {
	c      *Consumer[TTx]
	letter DeadLetter
	how    decide.Replay
	settle settleLetter[TTx]

	msg     *Message
	keys    []dedup.Record // first the one that the message runs under, then the letter's own if that is another one
	aliases []dedup.Record
	pass    pass

	measured transaction
	ran      bool
}

func (c *Consumer[TTx]) replayLetter(ctx context.Context, letter DeadLetter, opts Replay,
	settle settleLetter[TTx],
) (ran bool, err error) {
	if err := c.owns(letter); err != nil {
		return false, err
	}
	r := &replaying[TTx]{c: c, letter: letter, settle: settle, how: decide.Replay{
		Own: letter.Record, Cause: letter.Cause, Key: opts.Key, AsNew: opts.AsNew, Repaired: opts.Repair != nil,
	}}
	if r.how.NeedsDecision() {
		return false, r.refused(observe.CauseUnknown, 0)
	}
	if err := c.registration.register(ctx); err != nil {
		return false, err
	}
	if r.msg, err = repaired(letter, opts); err != nil {
		return false, err
	}
	r.how.SamePayload = bytes.Equal(r.msg.Payload, letter.Message.Payload)
	if s, short := letter.Shortened(); short {
		r.how.Lacks = s.Fields
	}
	if r.keys, err = r.records(); err != nil {
		return false, err
	}
	r.aliases = letter.AliasRecords(r.keys[0])
	// an Inbox forwards the message with the fingerprint that the replay claims
	r.msg.Fingerprint = &r.keys[0].Fingerprint
	r.pass = c.newPass(ctx, []*Message{r.msg}, letter.ID)
	r.pass.delivery.ParkedBy = letter.Message.Headers[headerParkedBy]
	ctx = r.pass.start(ctx)
	err = r.run(ctx)
	if errors.Is(err, dedup.ErrTxEnded) && !errors.Is(err, dedup.ErrRolledBack) {
		err = errors.Join(err, r.parkUnknown(ctx, err))
	}
	r.pass.outcome(0, r.outcome(ctx, err))
	r.pass.done(ctx)
	return r.ran, err
}

// repaired returns a copy of the message of letter, which opts.Repair may change in any way.
func repaired(letter DeadLetter, opts Replay) (*Message, error) {
	msg := letter.Message
	msg.Payload, msg.Headers = bytes.Clone(msg.Payload), maps.Clone(msg.Headers)
	msg.Attempt++
	delete(msg.Headers, headerParkedBy)
	delete(msg.Headers, headerAliases)
	delete(msg.Headers, headerShortened)
	if opts.Key != "" && msg.ID == letter.Record.Key.ID {
		msg.ID = opts.Key
	}
	if opts.Repair == nil {
		return &msg, nil
	}
	if err := onOwnGoroutine("Replay.Repair", func() error { return opts.Repair(&msg) }); err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	return &msg, nil
}

// records returns the keys to claim. A Duplicate of either means that the message was processed.
func (r *replaying[TTx]) records() (recs []dedup.Record, err error) {
	cfg := &r.c.cfg
	r.how.Own.Window = cfg.Window
	rec := r.how.Own
	switch {
	case r.how.Key != "":
		rec.Key.ID = r.how.Key
	case rec.Key.ID == "":
		if rec.Key, err = cfg.key(r.msg, true); err != nil {
			return nil, fmt.Errorf("it has no usable key: set Replay.Key, or a Repair after which Config.Key finds one: %w", err)
		}
	}
	if r.how.NewContent(rec.Key) {
		if rec.Fingerprint, err = cfg.fingerprint(r.msg, true); err != nil {
			rec.Fingerprint = dedup.FingerprintOf(r.msg.Payload)
		}
	}
	return r.how.Claims(cfg.claimRecord(rec)), nil
}

// run processes the message in one transaction.
func (r *replaying[TTx]) run(ctx context.Context) error {
	recs := slices.Concat(r.keys, r.aliases)
	unlock, err := r.c.memory.lockAll(ctx, recs)
	if err != nil {
		return err
	}
	defer unlock()
	r.measured = r.pass.transaction(1)
	r.measured.attempt.Retry = true
	err = r.c.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error { return r.within(ctx, tx, claims) })
	r.ran = r.ran && err == nil
	r.measured.end(ctx, r.c.classify.result(err), r.c.classify.causeIn(ctx, err), err)
	if errors.Is(err, dedup.ErrFuture) {
		return fmt.Errorf("%w; Replay it AsNew, which ignores its time", err)
	}
	return err
}

// within does the work of the transaction, which has claimed the keys and the aliases.
func (r *replaying[TTx]) within(ctx context.Context, tx TTx, claims []dedup.Claim) error {
	r.ran = false
	r.measured.claimed()
	var free []dedup.Record // aliases that this message has claimed now
	for i, alias := range r.aliases {
		if claims[len(r.keys)+i].Verdict == dedup.First {
			free = append(free, alias)
		}
	}
	verdicts := make([]dedup.Verdict, len(r.keys))
	for i := range verdicts {
		verdicts[i] = claims[i].Verdict
	}
	switch o := r.how.Of(verdicts, len(free) < len(r.aliases)); {
	case o.Refused != "":
		return r.refused(o.Refused, verdicts[0])
	case !o.Run:
		if verdicts[0] == dedup.First { // processed under its own key: nothing happens under the new one
			free = append(free, r.keys[0])
		}
		return r.removeProcessed(ctx, tx, free)
	}
	r.msg.Aliases = nil // without those that other messages have claimed
	for _, alias := range free {
		r.msg.Aliases = append(r.msg.Aliases, alias.Key.ID)
	}
	r.ran, r.measured.attempt.Ran = true, 1
	msgs := r.pass.delivery.Messages
	r.pass.claimed(ctx, msgs)
	err := onOwnGoroutine("the handler", func() error { return r.c.cfg.handle(ctx, tx, msgs, []dedup.Key{r.keys[0].Key}) })
	if verifier, ok := r.c.cfg.Store.(driver.TxVerifier[TTx]); ok && err == nil {
		if err = verifier.VerifyTx(ctx, tx); errors.Is(err, dedup.ErrTemporary) {
			err = nil // no other handler follows
		}
	}
	if err != nil {
		return err
	}
	return r.settle(ctx, tx, true)
}

// refused returns the error of a letter that needs a person's decision first. It says how to state the decision. v
// answers the claim of the key that the message runs under.
func (r *replaying[TTx]) refused(cause observe.Cause, v dedup.Verdict) error {
	switch {
	case cause == observe.CauseUnknown:
		return fmt.Errorf("%w: its handler, or that of another message in its batch, ended the transaction. Look for its effects: "+
			"if there are none, Replay it AsNew; if they are complete, Discard the letter", ErrOutcomeUnknown)
	case cause == observe.CauseMismatch && v == dedup.Mismatch:
		return fmt.Errorf("%w: give Replay a Key that is not in use, or Discard the letter", dedup.ErrMismatch)
	case cause == observe.CauseMismatch:
		return fmt.Errorf("%w: give Replay a new Key, or Discard the letter", dedup.ErrMismatch)
	case cause == observe.CauseUnprovable:
		return fmt.Errorf("%w: make sure that it was not processed, then Replay it AsNew, or Discard the letter",
			dedup.ErrUnprovable)
	case cause == observe.CauseKnownContent:
		return fmt.Errorf("%w: make sure that it is not a forgery or a copy, then Replay it AsNew, or Discard the letter", ErrKnownContent)
	}
	return r.letter.shortenedError()
}

// removeProcessed removes a letter whose message was processed since, under its own key or another one. unused are
// claims of tx that nothing was done for. If the letter does not exist any more, or has changed, removeProcessed fails
// with errProcessed and ErrNotParked.
func (r *replaying[TTx]) removeProcessed(ctx context.Context, tx TTx, unused []dedup.Record) error {
	for _, rec := range unused {
		if err := r.c.cfg.Store.Forget(ctx, tx, rec.Key); err != nil {
			return err
		}
	}
	err := r.settle(ctx, tx, false)
	if errors.Is(err, ErrNotParked) {
		err = fmt.Errorf("%w, %w", errProcessed, err)
	}
	return err
}

// parkUnknown parks a letter again whose handler ended the transaction that claimed it. The claim may be committed
// without all effects, so the letter must not count as settled. The claim stays, or is made, as when a message in doubt
// is parked.
func (r *replaying[TTx]) parkUnknown(ctx context.Context, failed error) error {
	ctx, cancel := outlive(ctx, parkDoubtsWithin)
	defer cancel()
	letter := r.letter
	letter.Cause, letter.Error = observe.CauseUnknown, (&unknownError{err: failed, sure: true}).Error()
	var recs []dedup.Record
	if own := r.how.Own; own.Key.ID != "" {
		own.Time = time.Time{}
		recs = append(recs, own)
	}
	if err := r.c.letters.parkAgain(ctx, recs, letter); err != nil {
		return fmt.Errorf("its letter could not be parked again with %s, and may count as settled: %w",
			observe.CauseUnknown, err)
	}
	return nil
}

// outcome names the outcome of the replay. After an error the letter is still there, except after ErrNotParked.
func (r *replaying[TTx]) outcome(ctx context.Context, err error) MessageOutcome {
	o := MessageOutcome{Outcome: observe.Duplicate, Key: r.keys[0].Key}
	switch {
	case r.ran:
		o.Outcome = observe.Processed
	case err == nil, errors.Is(err, ErrNotParked):
	default:
		o.Outcome, o.Cause, o.Err, o.Letter = observe.Parked, r.c.classify.causeIn(ctx, err), err, r.letter.ID
		switch o.Cause {
		case observe.CauseInFlight, observe.CauseDatabase, observe.CauseCancelled:
			// nothing is known that speaks against another replay
			o.Outcome = observe.Held
		default:
		}
	}
	return o
}
