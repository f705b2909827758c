package consumer_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Redeliveries and replays run at the same time, in different processes: there is one effect and no letter.
func TestReplayRacesRedelivery(t *testing.T) {
	for round := range 30 {
		db := deduptest.NewDatabase()
		broken := newConsumer(t, config{Store: consumertest.NewStoreOn(db), Handle: poison})
		process(t, broken, msg("1", "poison"))
		l := letters(t, broken)[0]
		var wg sync.WaitGroup
		for i := range 5 {
			c := newConsumer(t, config{Store: consumertest.NewStoreOn(db), Backoff: noBackoff})
			wg.Go(func() {
				if i < 3 {
					process(t, c, msg("1", "poison"))
					return
				}
				for {
					_, err := c.Replay(t.Context(), l, consumer.Replay{})
					if !errors.Is(err, dedup.ErrInFlight) {
						if err != nil {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		wg.Wait()
		if n, left := db.Count("1"), len(letters(t, broken)); n != 1 || left != 0 {
			t.Errorf("round %d: %d effects, %d letters; want 1 and none", round, n, left)
		}
	}
}

// As above, but the redeliveries may fail and park again: there is one effect at most, and a remaining letter is
// settled.
func TestReplayRacesRedeliveryThatParks(t *testing.T) {
	for round := range 30 {
		db := deduptest.NewDatabase()
		parks := newConsumer(t, config{Store: consumertest.NewStoreOn(db), Handle: poison})
		process(t, parks, msg("1", "poison"))
		l := letters(t, parks)[0]
		var wg sync.WaitGroup
		for i := range 5 {
			store := consumertest.NewStoreOn(db)
			wg.Go(func() {
				if i < 3 {
					process(t, newConsumer(t, config{Store: store, Handle: poison, Backoff: noBackoff}),
						msg("1", "poison"))
					return
				}
				fixed := newConsumer(t, config{Store: store, Backoff: noBackoff})
				for {
					if _, err := fixed.Replay(t.Context(), l, consumer.Replay{}); !errors.Is(err, dedup.ErrInFlight) {
						if err != nil && !errors.Is(err, consumer.ErrNotParked) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		wg.Wait()
		if n := db.Count("1"); n != 1 {
			t.Errorf("round %d: %d effects, want 1", round, n)
		}
		for _, left := range letters(t, parks) {
			if !left.Settled {
				t.Errorf("round %d: a letter is left that is not settled", round)
			}
		}
	}
}
