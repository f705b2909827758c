package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
)

// Replay says how to process a dead letter again. The zero value processes the message unchanged, under its business
// key.
type Replay struct {
	// Repair changes the message before the handler gets it. The message is still claimed with its original key,
	// fingerprint and Aliases, so that a late redelivery of the original is a duplicate.
	//
	// Defaults to no change.
	Repair func(msg *Message) error

	// Key is another business key to process the message under. A mismatch needs one, because its own key belongs to
	// other content. If Message.ID was the key, it is changed too, before Repair is called.
	//
	// Defaults to the message's own key. If it has none, defaults to what Config.Key finds after Repair.
	Key string

	// AsNew says that you have made sure that the message was not processed before. It is required for unprovable
	// messages, known content, and messages whose outcome is unknown. A message is known content, whatever it was
	// parked for, if one of its Aliases is claimed now. A message whose outcome is unknown then runs although its key
	// is claimed.
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
	if c.letters.lot == nil {
		return nil, fmt.Errorf("consumer %q: letters: %w", c.cfg.Name, errNoLot)
	}
	filter.Consumer = c.cfg.Name
	letters, err := c.letters.lot.DeadLetters(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("consumer %q: letters: %w", c.cfg.Name, err)
	}
	return letters, nil
}

// Replay processes a dead letter again and removes it, in one transaction. After an error nothing has happened, and the
// letter is still there. If the answer to COMMIT is lost, or after a crash, the letter shows what happened: it is gone
// exactly if the effects are committed. ran is false, without an error, if the message was processed since it was
// parked; then Replay only removes the letter.
//
// These errors say what is missing:
//   - dedup.ErrMismatch: opts needs a new Key.
//   - dedup.ErrUnprovable, ErrKnownContent, ErrOutcomeUnknown: opts must say AsNew.
//   - dedup.ErrNoKey: Repair or opts must provide a key.
//   - ErrShortened: Repair must put the whole message back; see DeadLetter.Shortened.
//   - dedup.ErrInFlight: the message is being processed right now. Try again later.
//   - ErrNotParked: the letter does not exist any more, or was parked again for another cause since it was read.
//
// dedup.ErrTxEnded is the exception: the handler ended the transaction, so its effects may be committed. The letter is
// parked again, with observe.CauseUnknown. Look for the effects.
func (c *Consumer[TTx]) Replay(ctx context.Context, letter DeadLetter, opts Replay) (ran bool, err error) {
	ran, err = c.replayLetter(ctx, letter, opts, func(ctx context.Context, tx TTx,
		_ bool,
	) error {
		return c.letters.lot.TakeDeadLetter(ctx, tx, letter)
	})
	if errors.Is(err, errProcessed) {
		if left, listErr := c.letters.lot.DeadLetters(ctx, DeadLetterFilter{ID: letter.ID, Limit: 1}); len(left) == 0 &&
			listErr == nil {
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

// Discard removes a dead letter without processing it, in one transaction that also claims its key and its Aliases for
// its content, so that a late redelivery is a duplicate, and another message with one of its Aliases is known content.
// After an error the letter is still there, unless the answer to COMMIT was lost. Some messages are parked again if
// they are delivered again: those without a key, and those with observe.CauseMismatch, whose key belongs to another
// message. The claim of a letter with observe.CauseUnknown stays as it is.
func (c *Consumer[TTx]) Discard(ctx context.Context, letter DeadLetter) error {
	err := c.owns(letter)
	if err == nil {
		err = c.registration.register(ctx)
	}
	if err == nil {
		err = c.cfg.Store.InTx(ctx, letter.DiscardRecords(c.cfg.Window),
			func(tx TTx, _ []dedup.Claim) error { return c.letters.lot.TakeDeadLetter(ctx, tx, letter) })
	}
	if err != nil {
		return fmt.Errorf("consumer %q: discard letter %v: %w", c.cfg.Name, letter.ID, err)
	}
	return nil
}

func (c *Consumer[TTx]) owns(letter DeadLetter) error {
	switch {
	case c.letters.lot == nil:
		return errNoLot
	case letter.Record.Key.Consumer != c.cfg.Name:
		return fmt.Errorf("it belongs to consumer %q", letter.Record.Key.Consumer)
	}
	return nil
}
