package consumer_test

import (
	"errors"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// endsElsewhere delivers m to another process, whose handler commits the transaction by itself. Its effects may be
// incomplete.
func endsElsewhere(t *testing.T, db *deduptest.Database, m *consumer.Message) {
	t.Helper()
	other := newConsumer(t, config{Store: &endable{Store: consumertest.NewStoreOn(db)}, Handle: commits(map[string]int{}, func() {})})
	process(t, other, m)
}

// wantUnknown fails unless the only letter is of unknown outcome.
func wantUnknown(t *testing.T, c *consumer.Consumer[tx]) {
	t.Helper()
	if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseUnknown {
		t.Errorf("letters %+v, want one of unknown outcome", found)
	}
}

// A letter may be parked again for another cause after it was read. What was decided about it before must not remove
// it: its key is claimed although its effects may be incomplete.
func TestALetterThatChangedAfterItWasRead(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, c *consumer.Consumer[tx], l consumer.DeadLetter) error{
		"replay": func(t *testing.T, c *consumer.Consumer[tx], l consumer.DeadLetter) error {
			_, err := c.Replay(t.Context(), l, consumer.Replay{})
			return err
		},
		"replay under a new key": func(t *testing.T, c *consumer.Consumer[tx], l consumer.DeadLetter) error {
			_, err := c.Replay(t.Context(), l, consumer.Replay{Key: "new"})
			return err
		},
		"discard": func(t *testing.T, c *consumer.Consumer[tx], l consumer.DeadLetter) error {
			return c.Discard(t.Context(), l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := consumertest.NewStore()
			c := newConsumer(t, config{Store: store, Handle: poison})
			process(t, c, msg("0", "poison"))
			l := letters(t, c)[0]
			endsElsewhere(t, store.Database(), msg("0", "poison"))
			if err := act(t, c, l); !errors.Is(err, consumer.ErrNotParked) {
				t.Errorf("%v, want ErrNotParked", err)
			}
			wantUnknown(t, c)
			if _, claimed, _ := store.Lookup(t.Context(), dedup.Key{Consumer: "billing", ID: "new"}); claimed {
				t.Error("the new key is claimed")
			}
		})
	}
}

// The end of a trial removes only the letter of the trial.
func TestALetterThatChangedDuringATrial(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore()}
	begun := 0
	store.before = func() error {
		if begun++; begun == 2 { // the first transaction has written the letter of the trial
			endsElsewhere(t, store.Database(), msg("0", "poison"))
		}
		return nil
	}
	c := newConsumer(t, config{Store: store})
	m := msg("0", "poison")
	m.Attempt = 90
	process(t, c, m)
	wantUnknown(t, c)
}
