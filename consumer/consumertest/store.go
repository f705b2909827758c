package consumertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// Store is a deduptest.Store that is also a driver.ParkingLot. It is safe for concurrent use.
type Store struct {
	*deduptest.Store

	// LetterLimit is how many bytes a dead letter may have: its payload, headers and texts. Park refuses longer ones,
	// as databases do with a limit for packets, for example.
	//
	// Defaults to no limit.
	LetterLimit int
}

var (
	_ dedup.Store[*deduptest.Tx]       = (*Store)(nil)
	_ driver.ParkingLot[*deduptest.Tx] = (*Store)(nil)
)

// NewStore returns a Store on a new database in memory.
func NewStore() *Store { return NewStoreOn(deduptest.NewDatabase()) }

// NewStoreOn returns another Store on db, as another process has one.
func NewStoreOn(db *deduptest.Database) *Store { return &Store{Store: db.NewStore()} }

// letters begins the names of the database's values that are dead letters.
const letters = "consumertest: dead letter "

// Park implements driver.ParkingLot.
func (s *Store) Park(ctx context.Context, tx *deduptest.Tx, letter consumer.DeadLetter) error {
	if letter.ID == (consumer.DeadLetterID{}) || letter.Cause == "" {
		return tx.Fail(fmt.Errorf("consumertest: park: a letter needs an ID and a Cause; this one has %v and %q",
			letter.ID, letter.Cause))
	}
	if n := letterBytes(letter); s.LetterLimit > 0 && n > s.LetterLimit {
		return tx.Fail(fmt.Errorf("consumertest: park: a letter of %d bytes is longer than LetterLimit, which is %d", n,
			s.LetterLimit))
	}
	now := s.now()
	letter.Message.Payload, letter.Message.Headers = bytes.Clone(letter.Message.Payload),
		maps.Clone(letter.Message.Headers)
	letter.Times, letter.First, letter.Latest = 1, now, now
	return tx.Update(ctx, letters+letter.ID.String(), func(old any) any {
		if before, ok := old.(consumer.DeadLetter); ok {
			letter.Times, letter.First = before.Times+1, before.First
			if len(before.Message.Payload) > len(letter.Message.Payload) { // one of them is shortened
				letter.Message.Payload = before.Message.Payload
			}
		}
		return letter
	})
}

func letterBytes(l consumer.DeadLetter) int {
	n := len(l.Message.Payload) + len(l.Message.OrderingKey) + len(l.Message.Topic) + len(l.Message.Position) + len(l.Error)
	for name, value := range l.Message.Headers {
		n += len(name) + len(value)
	}
	return n
}

// TakeDeadLetter implements driver.ParkingLot.
func (s *Store) TakeDeadLetter(ctx context.Context, tx *deduptest.Tx, letter consumer.DeadLetter) error {
	found := false
	err := tx.Update(ctx, letters+letter.ID.String(), func(old any) any {
		if l, ok := old.(consumer.DeadLetter); ok && l.Cause == letter.Cause {
			found, old = true, nil
		}
		return old
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %v", consumer.ErrNotParked, letter.ID)
	}
	return err
}

// DeadLetters implements driver.ParkingLot.
func (s *Store) DeadLetters(ctx context.Context, f consumer.DeadLetterFilter) (found []consumer.DeadLetter, err error) {
	var all []consumer.DeadLetter
	for _, l := range s.Database().Values(letters) {
		all = append(all, l.(consumer.DeadLetter))
	}
	slices.SortFunc(all, func(a, b consumer.DeadLetter) int { return newer(a.Cursor(), b.Cursor()) })
	for _, l := range all {
		if f.ID != (consumer.DeadLetterID{}) && f.ID != l.ID ||
			f.Consumer != "" && f.Consumer != l.Record.Key.Consumer ||
			f.Cause != "" && f.Cause != l.Cause ||
			f.Position != "" && f.Position != l.Message.Position ||
			f.After != (consumer.DeadLetterCursor{}) && newer(l.Cursor(), f.After) <= 0 {
			continue
		}
		if len(found) == cmp.Or(f.Limit, 100) {
			break
		}
		if l.Record.Key.ID != "" && l.Cause != observe.CauseUnknown {
			claim, claimed, err := s.Lookup(ctx, l.Record.Key)
			if err != nil {
				return nil, err
			}
			l.Settled = claimed && claim.Fingerprint.Matches(l.Record.Fingerprint)
		}
		l.Message.Payload, l.Message.Headers = bytes.Clone(l.Message.Payload), maps.Clone(l.Message.Headers)
		found = append(found, l)
	}
	return found, nil
}

// Purge implements dedup.Purger. It removes settled letters first, because it may delete the claims that settled them.
func (s *Store) Purge(ctx context.Context, by dedup.Sweep) (dedup.SweepResult, error) {
	for after := (consumer.DeadLetterCursor{}); ; {
		page, err := s.DeadLetters(ctx, consumer.DeadLetterFilter{After: after})
		if err != nil {
			return dedup.SweepResult{}, err
		}
		if len(page) == 0 {
			return s.Store.Purge(ctx, by)
		}
		for _, l := range page {
			if after = l.Cursor(); !l.Settled {
				continue
			}
			if err := s.InTx(ctx, nil, func(tx *deduptest.Tx,
				_ []dedup.Claim,
			) error {
				return s.TakeDeadLetter(ctx, tx, l)
			}); err != nil {
				return dedup.SweepResult{}, err
			}
		}
	}
}

// newer compares cursors. It is negative if a comes before b.
func newer(a, b consumer.DeadLetterCursor) int {
	return cmp.Or(b.First.Compare(a.First), bytes.Compare(b.ID[:], a.ID[:]))
}

func (s *Store) now() time.Time {
	if now := s.Database().Now; now != nil {
		return now()
	}
	return time.Now()
}
