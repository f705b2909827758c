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
)

// Replay says how to process a dead letter again. The zero value processes the message as it is, under its natural key.
type Replay struct {
	// Repair changes the message before its handler gets it. The message is still claimed under its original key and
	// fingerprint, so that a late redelivery of the original is a duplicate. Defaults to no change.
	Repair func(msg *Message) error

	// Key is another natural key to process the message under. A mismatch needs one, as its own belongs to other
	// content. Defaults to the message's own key, and where it had none to what Config.Key finds after Repair.
	Key string

	// AsNew says that a person has made sure that the message was not processed before. Unprovable messages, suspected replays
	// and those of unknown outcome need it. A message of unknown outcome then runs although its claim is there.
	// Defaults to a message that its claim shows to be new.
	AsNew bool
}

// errNoLot says why there are no dead letters.
var errNoLot = errors.New("the store keeps no dead letters: it is no ParkingLot")

// DeadLetters lists dead letters of this consumer, newest first; see DeadLetterFilter.After for the next page.
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

// Replay processes a dead letter again and takes it from the parking lot, in one transaction: after an error nothing has
// happened, and the letter is still there. ran is false, without an error, if there was nothing left to do because the
// message has been processed since; then the letter is only taken.
//
// A mismatch is refused with dedup.ErrMismatch unless opts has a new Key, an unprovable message with dedup.ErrUnprovable
// unless opts says AsNew, a suspected replay with ErrSuspectedReplay and an unknown outcome with ErrOutcomeUnknown likewise, and a
// letter without a key with dedup.ErrNoKey unless Repair or opts gives it one. dedup.ErrInFlight says that it is being processed
// right now. After dedup.ErrTxEnded something may have happened: the handler ended the transaction by itself. Look at its effects.
func (c *Consumer[TTx]) Replay(ctx context.Context, letter DeadLetter, opts Replay) (ran bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("consumer %q: replay letter %v: %w", c.cfg.Name, letter.ID, err)
		}
	}()
	if err := c.owns(letter); err != nil {
		return false, err
	}
	if letter.Reason == ReasonUnknown && !opts.AsNew {
		return false, fmt.Errorf("%w: its handler, or that of another message in its batch, ended the transaction. Look whether its effects are there: "+
			"where none are, Replay it AsNew; where all are, Discard the letter", ErrOutcomeUnknown)
	}
	if err := c.register(ctx); err != nil {
		return false, err
	}
	msg, err := repaired(letter.Message, opts.Repair)
	if err != nil {
		return false, err
	}
	recs, err := c.replayed(letter, msg, opts)
	if err != nil {
		return false, err
	}
	began := time.Now()
	unlock, err := c.keys.lockAll(ctx, recs)
	if err != nil {
		return false, err
	}
	defer unlock()
	err = c.cfg.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
		ran = false
		processed := func(claim dedup.Claim) bool { return claim.Verdict == dedup.Duplicate }
		if letter.Reason == ReasonUnknown { // a claim of its own key says nothing
			processed = func(claim dedup.Claim) bool {
				return claim.Verdict == dedup.Duplicate && recs[0].Key != letter.Record.Key
			}
			claims = claims[:1]
		}
		if slices.ContainsFunc(claims, processed) {
			return c.settle(ctx, tx, letter.ID, recs[0].Key, claims[0].Verdict)
		}
		if err := mayReplay(letter, claims[0].Verdict, opts); err != nil {
			return err
		}
		if err := c.lot.TakeDeadLetter(ctx, tx, letter.ID); err != nil {
			return err
		}
		ran = true
		return c.handle(ctx, tx, recs[0].Key, msg)
	})
	if errors.Is(err, dedup.ErrFuture) {
		return false, fmt.Errorf("%w; Replay it AsNew, which leaves its time out", err)
	}
	if err != nil {
		return false, err
	}
	if ran {
		c.cfg.Trace.emit(ctx, onCommitted, Event{Consumer: c.cfg.Name, Message: msg, Took: time.Since(began)})
	}
	return ran, nil
}

// Discard takes a letter from the parking lot for good: its key is claimed for its content, so that a late redelivery of it
// is a duplicate. A letter without a key, and a mismatch, whose key is another message's, are parked again if they are
// delivered again. The claim of a letter with ReasonUnknown stays as it is.
func (c *Consumer[TTx]) Discard(ctx context.Context, letter DeadLetter) error {
	err := c.owns(letter)
	if err == nil {
		err = c.register(ctx)
	}
	var recs []dedup.Record
	if letter.Record.Key.ID != "" {
		rec := letter.Record
		rec.Window, rec.Time = c.cfg.Window, time.Time{} // a person has decided
		recs = append(recs, rec)
	}
	if err == nil {
		err = c.cfg.Store.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error { return c.lot.TakeDeadLetter(ctx, tx, letter.ID) })
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
		return fmt.Errorf("it is of consumer %q", letter.Record.Key.Consumer)
	}
	return nil
}

// repaired returns a copy of msg that repair may change in any way.
func repaired(msg Message, repair func(*Message) error) (_ *Message, err error) {
	msg.Payload, msg.Headers = bytes.Clone(msg.Payload), maps.Clone(msg.Headers)
	msg.Attempt++
	if repair == nil {
		return &msg, nil
	}
	defer recovered(&err)
	if err := repair(&msg); err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	return &msg, nil
}

// replayed says what to claim: first what the message runs under, then the letter's own key where that is another one. A
// Duplicate of either says that the message was processed. The letter's own key stays claimed, as what came under it is
// now processed.
func (c *Consumer[TTx]) replayed(letter DeadLetter, msg *Message, opts Replay) (recs []dedup.Record, err error) {
	own := letter.Record
	own.Window = c.cfg.Window
	rec := own
	switch {
	case opts.Key != "":
		rec.Key.ID = opts.Key
	case own.Key.ID == "":
		if rec.Key, err = c.key(msg); err != nil {
			return nil, fmt.Errorf("it has no usable key: give Replay one in Key, or a Repair after which Config.Key finds one: %w", err)
		}
	}
	if rec.Key != own.Key {
		if rec.Fingerprint, err = c.fingerprint(msg); err != nil {
			rec.Fingerprint = dedup.FingerprintOf(msg.Payload)
		}
	}
	if rec = c.ask(rec); opts.AsNew {
		rec.Time = time.Time{}
	}
	if recs = append(recs, rec); rec.Key != own.Key && own.Key.ID != "" {
		own.Time = time.Time{}
		recs = append(recs, own)
	}
	return recs, nil
}

// mayReplay refuses what a person has to decide, and says how.
func mayReplay(letter DeadLetter, v dedup.Verdict, opts Replay) error {
	switch {
	case v == dedup.Mismatch:
		return fmt.Errorf("%w: give Replay a Key that is not in use, or Discard the letter", dedup.ErrMismatch)
	case letter.Reason == ReasonMismatch && (opts.Key == "" || opts.Key == letter.Record.Key.ID):
		return fmt.Errorf("%w: give Replay a new Key, or Discard the letter", dedup.ErrMismatch)
	case opts.AsNew:
		return nil
	case v == dedup.Unprovable, letter.Reason == ReasonUnprovable:
		return fmt.Errorf("%w: make sure that it was not processed, then Replay it AsNew, or Discard the letter", dedup.ErrUnprovable)
	case letter.Reason == ReasonReplay:
		return fmt.Errorf("%w: make sure that it is not a forgery or a copy, then Replay it AsNew, or Discard the letter", ErrSuspectedReplay)
	}
	return nil
}

// settle takes a letter that was processed since, under its own key or another one. Somebody else may have taken it.
func (c *Consumer[TTx]) settle(ctx context.Context, tx TTx, id DeadLetterID, key dedup.Key, v dedup.Verdict) error {
	if v == dedup.First { // under its own: nothing happens under the new one
		if err := c.cfg.Store.Forget(ctx, tx, key); err != nil {
			return err
		}
	}
	if err := c.lot.TakeDeadLetter(ctx, tx, id); !errors.Is(err, ErrNotParked) {
		return err
	}
	return nil
}
