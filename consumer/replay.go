package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// Replay says how to process a dead letter again. The zero value processes the message unchanged, under its natural key.
type Replay struct {
	// Repair changes the message before the handler gets it. The message is still claimed with its original key, fingerprint and
	// Aliases, so that a late redelivery of the original is a duplicate.
	//
	// Defaults to no change.
	Repair func(msg *Message) error

	// Key is another natural key to process the message under. A mismatch needs one, because its own key belongs to other content.
	// If Message.ID was the key, it is changed too, before Repair is called.
	//
	// Defaults to the message's own key. If it has none, defaults to what Config.Key finds after Repair.
	Key string

	// AsNew says that you have made sure that the message was not processed before. It is required for unprovable messages,
	// known content, and messages whose outcome is unknown. A message is known content, whatever it was parked for, if one of
	// its Aliases is claimed now. A message whose outcome is unknown then runs although its key is claimed.
	AsNew bool
}

// errProcessed says that the message of a letter is processed, but that its letter could not be removed.
var errProcessed = errors.New("the message is processed")

var errNoLot = errors.New("the store keeps no dead letters: it is not a ParkingLot")

// DeadLetters lists dead letters of this consumer, newest first. DeadLetterFilter.After chooses the next page.
func (c *Consumer[TTx]) DeadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error) {
	switch filter.Consumer {
	case "", c.cfg.Name:
	default:
		return nil, fmt.Errorf("consumer %q: letters: the filter asks for those of %q", c.cfg.Name, filter.Consumer)
	}
	if c.lot == nil {
		return nil, fmt.Errorf("consumer %q: letters: %w", c.cfg.Name, errNoLot)
	}
	filter.Consumer = c.cfg.Name
	letters, err := c.lot.DeadLetters(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("consumer %q: letters: %w", c.cfg.Name, err)
	}
	return letters, nil
}

// Replay processes a dead letter again and removes it, in one transaction. After an error nothing has happened, and the letter
// is still there. If the answer to COMMIT is lost, or after a crash, the letter shows what happened: it is gone exactly if
// the effects are committed. ran is false, without an error, if the message was processed since it was parked; then Replay
// only removes the letter.
//
// These errors say what is missing:
//   - dedup.ErrMismatch: opts needs a new Key.
//   - dedup.ErrUnprovable, ErrKnownContent, ErrOutcomeUnknown: opts must say AsNew.
//   - dedup.ErrNoKey: Repair or opts must provide a key.
//   - ErrShortened: Repair must put the whole message back; see DeadLetter.Shortened.
//   - dedup.ErrInFlight: the message is being processed right now. Try again later.
//   - ErrNotParked: the letter does not exist any more, or was parked again for another cause since it was read.
//
// dedup.ErrTxEnded is the exception: the handler ended the transaction, so its effects may be committed. The letter is parked again, with
// observe.CauseUnknown. Look for the effects.
func (c *Consumer[TTx]) Replay(ctx context.Context, letter DeadLetter, opts Replay) (ran bool, err error) {
	ran, err = c.replayLetter(ctx, letter, opts, func(ctx context.Context, tx TTx, _ bool) error { return c.lot.TakeDeadLetter(ctx, tx, letter) })
	if errors.Is(err, errProcessed) {
		if left, listErr := c.lot.DeadLetters(ctx, DeadLetterFilter{ID: letter.ID, Limit: 1}); len(left) == 0 && listErr == nil {
			return false, nil // somebody else has removed it
		}
	}
	return ran, c.replayError(letter, err)
}

// replayError names the letter in an error of replayLetter. The results of a request name it already.
func (c *Consumer[TTx]) replayError(letter DeadLetter, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("consumer %q: replay letter %v: %w", c.cfg.Name, letter.ID, err)
}

// settleLetter removes a letter as part of tx. ran says that its message is processed in tx, and not before. It is called after the handler,
// so that a handler that commits the transaction by itself removes no letter.
type settleLetter[TTx any] func(ctx context.Context, tx TTx, ran bool) error

func (c *Consumer[TTx]) replayLetter(ctx context.Context, letter DeadLetter, opts Replay, settle settleLetter[TTx]) (ran bool, err error) {
	if err := c.owns(letter); err != nil {
		return false, err
	}
	if letter.Cause == observe.CauseUnknown && !opts.AsNew {
		return false, fmt.Errorf("%w: its handler, or that of another message in its batch, ended the transaction. Look for its effects: "+
			"if there are none, Replay it AsNew; if they are complete, Discard the letter", ErrOutcomeUnknown)
	}
	if err := c.registration.register(ctx); err != nil {
		return false, err
	}
	msg, err := repaired(letter, opts)
	if err != nil {
		return false, err
	}
	keys, err := c.replayRecords(letter, msg, opts)
	if err != nil {
		return false, err
	}
	msg.Fingerprint = &keys[0].Fingerprint // an Inbox forwards the message with the fingerprint that the replay claims
	p := c.newPass(ctx, []*Message{msg}, letter.ID)
	p.delivery.ParkedBy = letter.Message.Headers[HeaderParkedBy]
	ctx = p.start(ctx)
	ran, err = c.replay(ctx, &p, letter, keys, opts, settle)
	if errors.Is(err, dedup.ErrTxEnded) && !errors.Is(err, dedup.ErrRolledBack) {
		err = errors.Join(err, c.parkUnknown(ctx, letter, err))
	}
	p.outcome(0, c.replayOutcome(ctx, letter, keys[0].Key, ran, err))
	p.done(ctx)
	return ran, err
}

// replay makes one attempt to process the message of p, which is that of letter. keys are what replayRecords returned.
func (c *Consumer[TTx]) replay(ctx context.Context, p *pass, letter DeadLetter, keys []dedup.Record, opts Replay, settle settleLetter[TTx],
) (ran bool, err error) {
	aliases := letter.AliasRecords(keys[0])
	recs := slices.Concat(keys, aliases)
	unlock, err := c.memory.lockAll(ctx, recs)
	if err != nil {
		return false, err
	}
	defer unlock()
	msgs, measured := p.delivery.Messages, p.transaction(1)
	measured.attempt.Retry = true
	err = c.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		ran = false
		measured.claimed()
		var free []dedup.Record // aliases that this message has claimed now
		for i, alias := range aliases {
			if claims[len(keys)+i].Verdict == dedup.First {
				free = append(free, alias)
			}
		}
		claims = claims[:len(keys)]
		processed := func(claim dedup.Claim) bool { return claim.Verdict == dedup.Duplicate }
		if letter.Cause == observe.CauseUnknown { // a claim of its own key proves nothing
			processed = func(claim dedup.Claim) bool {
				return claim.Verdict == dedup.Duplicate && keys[0].Key != letter.Record.Key
			}
			claims = claims[:1]
		}
		if slices.ContainsFunc(claims, processed) {
			unused := free
			if claims[0].Verdict == dedup.First { // processed under its own key: nothing happens under the new one
				unused = append(unused, keys[0])
			}
			return c.removeProcessed(ctx, tx, settle, unused)
		}
		if err := mayReplay(letter, claims[0].Verdict, len(free) < len(aliases), opts); err != nil {
			return err
		}
		if err := letter.lacks(msgs[0], opts.Repair != nil); err != nil {
			return err
		}
		msgs[0].Aliases = nil // without those that other messages have claimed
		for _, alias := range free {
			msgs[0].Aliases = append(msgs[0].Aliases, alias.Key.ID)
		}
		ran = true
		measured.attempt.Ran = 1
		p.claimed(ctx, msgs)
		err := onOwnGoroutine("the handler", func() error { return c.cfg.handle(ctx, tx, msgs, []dedup.Key{keys[0].Key}) })
		if verifier, ok := c.cfg.Store.(driver.TxVerifier[TTx]); ok && err == nil {
			if err = verifier.VerifyTx(ctx, tx); errors.Is(err, dedup.ErrTemporary) {
				err = nil // no other handler follows
			}
		}
		if err != nil {
			return err
		}
		return settle(ctx, tx, true)
	})
	measured.end(ctx, c.classify.result(err), c.classify.causeIn(ctx, err), err)
	if errors.Is(err, dedup.ErrFuture) {
		return false, fmt.Errorf("%w; Replay it AsNew, which ignores its time", err)
	}
	return ran && err == nil, err
}

// parkUnknown parks a letter again whose handler ended the transaction that claimed it. The claim may be committed without all effects, so
// the letter must not count as settled. The claim stays, or is made, as in batch.park.
func (c *Consumer[TTx]) parkUnknown(ctx context.Context, letter DeadLetter, failed error) error {
	ctx, cancel := outlive(ctx, parkDoubtsWithin)
	defer cancel()
	letter.Cause, letter.Error = observe.CauseUnknown, (&unknownError{err: failed, sure: true}).Error()
	var recs []dedup.Record
	if own := letter.Record; own.Key.ID != "" {
		own.Window, own.Time = c.cfg.Window, time.Time{}
		recs = append(recs, own)
	}
	if err := c.parkAgain(ctx, recs, letter); err != nil {
		return fmt.Errorf("its letter could not be parked again with %s, and may count as settled: %w", observe.CauseUnknown, err)
	}
	return nil
}

// replayOutcome names the outcome of a replay. After an error the letter is still there, except after ErrNotParked.
func (c *Consumer[TTx]) replayOutcome(ctx context.Context, letter DeadLetter, key dedup.Key, ran bool, err error) MessageOutcome {
	switch {
	case ran:
		return MessageOutcome{Outcome: observe.Processed, Key: key}
	case err == nil, errors.Is(err, ErrNotParked):
		return MessageOutcome{Outcome: observe.Duplicate, Key: key}
	}
	o := MessageOutcome{Outcome: observe.Parked, Cause: c.classify.causeIn(ctx, err), Key: key, Err: err, Letter: letter.ID}
	switch o.Cause {
	case observe.CauseInFlight, observe.CauseDatabase, observe.CauseCancelled: // nothing is known that speaks against another replay
		o.Outcome = observe.Held
	default:
	}
	return o
}

// Discard removes a dead letter without processing it, in one transaction that also claims its key and its Aliases for its content, so
// that a late redelivery is a duplicate, and another message with one of its Aliases is known content. After an error the letter is
// still there, unless the answer to COMMIT was lost. Some messages are parked again if they are delivered again: those without a key, and
// those with observe.CauseMismatch, whose key belongs to another message. The claim of a letter with observe.CauseUnknown stays as it is.
func (c *Consumer[TTx]) Discard(ctx context.Context, letter DeadLetter) error {
	err := c.owns(letter)
	if err == nil {
		err = c.registration.register(ctx)
	}
	var recs []dedup.Record
	if letter.Record.Key.ID != "" {
		rec := letter.Record
		rec.Window, rec.Time = c.cfg.Window, time.Time{} // without a time it is never Unprovable
		recs = append([]dedup.Record{rec}, letter.AliasRecords(rec)...)
	}
	if err == nil {
		err = c.cfg.Store.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error { return c.lot.TakeDeadLetter(ctx, tx, letter) })
	}
	if err != nil {
		return fmt.Errorf("consumer %q: discard letter %v: %w", c.cfg.Name, letter.ID, err)
	}
	return nil
}

func (c *Consumer[TTx]) owns(letter DeadLetter) error {
	switch {
	case c.lot == nil:
		return errNoLot
	case letter.Record.Key.Consumer != c.cfg.Name:
		return fmt.Errorf("it belongs to consumer %q", letter.Record.Key.Consumer)
	}
	return nil
}

// repaired returns a copy of the message of letter, which opts.Repair may change in any way.
func repaired(letter DeadLetter, opts Replay) (*Message, error) {
	msg := letter.Message
	msg.Payload, msg.Headers = bytes.Clone(msg.Payload), maps.Clone(msg.Headers)
	msg.Attempt++
	delete(msg.Headers, HeaderParkedBy)
	delete(msg.Headers, HeaderAliases)
	delete(msg.Headers, HeaderShortened)
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

// replayRecords returns the keys to claim: first the one that the message runs under, then the letter's own key if that is
// another one. A Duplicate of either means that the message was processed. The letter's own key stays claimed, because the
// message that had it is processed now.
func (c *Consumer[TTx]) replayRecords(letter DeadLetter, msg *Message, opts Replay) (recs []dedup.Record, err error) {
	own := letter.Record
	own.Window = c.cfg.Window
	rec := own
	switch {
	case opts.Key != "":
		rec.Key.ID = opts.Key
	case own.Key.ID == "":
		if rec.Key, err = c.cfg.key(msg, true); err != nil {
			return nil, fmt.Errorf("it has no usable key: set Replay.Key, or a Repair after which Config.Key finds one: %w", err)
		}
	}
	// The payload that was parked keeps its fingerprint under another key: if its source gave that, Config.Fingerprint gives another one.
	if rec.Key != own.Key && (own.Fingerprint.IsZero() || !bytes.Equal(msg.Payload, letter.Message.Payload)) {
		if rec.Fingerprint, err = c.cfg.fingerprint(msg, true); err != nil {
			rec.Fingerprint = dedup.FingerprintOf(msg.Payload)
		}
	}
	if rec = c.cfg.claimRecord(rec); opts.AsNew {
		rec.Time = time.Time{}
	}
	if recs = append(recs, rec); rec.Key != own.Key && own.Key.ID != "" {
		own.Time = time.Time{}
		recs = append(recs, own)
	}
	return recs, nil
}

// mayReplay refuses a letter that needs a person's decision first. The error says how to state it. v answers the claim of the key that the
// message runs under; suspected says that another message has claimed one of its aliases.
func mayReplay(letter DeadLetter, v dedup.Verdict, suspected bool, opts Replay) error {
	switch {
	case v == dedup.Mismatch:
		return fmt.Errorf("%w: give Replay a Key that is not in use, or Discard the letter", dedup.ErrMismatch)
	case letter.Cause == observe.CauseMismatch && (opts.Key == "" || opts.Key == letter.Record.Key.ID):
		return fmt.Errorf("%w: give Replay a new Key, or Discard the letter", dedup.ErrMismatch)
	case opts.AsNew:
		return nil
	case v == dedup.Unprovable, letter.Cause == observe.CauseUnprovable:
		return fmt.Errorf("%w: make sure that it was not processed, then Replay it AsNew, or Discard the letter", dedup.ErrUnprovable)
	case suspected, letter.Cause == observe.CauseKnownContent:
		return fmt.Errorf("%w: make sure that it is not a forgery or a copy, then Replay it AsNew, or Discard the letter", ErrKnownContent)
	}
	return nil
}

// removeProcessed removes a letter whose message was processed since, under its own key or another one. unused are claims of tx that
// nothing was done for. If the letter does not exist any more, or has changed, removeProcessed fails with errProcessed and ErrNotParked.
func (c *Consumer[TTx]) removeProcessed(ctx context.Context, tx TTx, settle settleLetter[TTx], unused []dedup.Record) error {
	for _, rec := range unused {
		if err := c.cfg.Store.Forget(ctx, tx, rec.Key); err != nil {
			return err
		}
	}
	err := settle(ctx, tx, false)
	if errors.Is(err, ErrNotParked) {
		err = fmt.Errorf("%w, %w", errProcessed, err)
	}
	return err
}
