package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// If parking fails, the message is neither rejected nor lost.
func TestParkingThatFailsIsRetriedWithoutBlame(t *testing.T) {
	for _, fail := range []error{errFault, dedup.ErrInFlight, errors.New("anything")} {
		t.Run(fail.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: consumertest.NewStore()}
				n := 0
				store.before = func() error {
					if n++; n%2 == 0 && n < 10 { // each second transaction is for parking
						return fail
					}
					return nil
				}
				c := newConsumer(t, config{Store: store, Handle: poison})
				wantRetry(t, c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison")})[0], true)
				process(t, c, msg("1", "poison"))
				if found := letters(t, c); len(found) != 1 || found[0].Message.Attempt != 1 {
					t.Errorf("letters: %+v", found)
				}
			})
		})
	}
}

// The claim of the parking transaction notices what changed after the attempt.
func TestParkingLooksAgain(t *testing.T) {
	key := dedup.Key{Consumer: "billing", ID: "1"}
	for _, tc := range []struct {
		name    string
		before  []*consumer.Message
		msg     *consumer.Message
		meddle  func(ctx context.Context, s *consumertest.Store, tx tx) error // right before the message is parked
		effects int
		cause   observe.Cause // empty: not parked
	}{
		{
			"the other content is forgotten",
			[]*consumer.Message{msg("1", "a")},
			msg("1", "b"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error { return s.Forget(ctx, tx, key) }, 2, "",
		},
		{
			"its key is claimed for other content", nil, msg("1", "poison"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error {
				_, err := s.Claim(ctx, tx, []dedup.Record{{Key: key, Fingerprint: dedup.FingerprintOf([]byte("other"))}})
				return err
			}, 0, observe.CauseMismatch,
		},
		{
			"a copy of it succeeds", nil, msg("1", "poison"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error {
				_, err := s.Claim(ctx, tx, []dedup.Record{{Key: key, Fingerprint: dedup.FingerprintOf([]byte("poison"))}})
				return err
			}, 0, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &faulty{Store: consumertest.NewStore()}
			c := newConsumer(t, config{Store: store, Handle: poison, Backoff: noBackoff})
			for _, m := range tc.before {
				process(t, c, m)
			}
			n := 0
			store.before = func() error {
				if n++; n != 2 {
					return nil
				}
				return store.Store.InTx(t.Context(), nil,
					func(tx tx, _ []dedup.Claim) error { return tc.meddle(t.Context(), store.Store, tx) })
			}
			process(t, c, tc.msg)
			wantCount(t, store.Database(), "1", tc.effects)
			found := letters(t, c)
			switch {
			case tc.cause == "" && len(found) != 0:
				t.Errorf("parked: %+v", found)
			case tc.cause != "" && (len(found) != 1 || found[0].Cause != tc.cause || !strings.Contains(found[0].Error,
				"poison")):
				t.Errorf("letters: %+v", found)
			}
		})
	}
}

func TestParkingThatFailsCostsNothing(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore()}
	n := 0
	store.before = func() error {
		if n++; n == 2 {
			return errFault
		}
		return nil
	}
	c := newConsumer(t, config{Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1}})
	for range 2 {
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison")})[0]; errors.Is(err,
			consumer.ErrParkLimit) {
			t.Error(err)
		}
	}
	if found := letters(t, c); len(found) != 1 {
		t.Errorf("%d letters, want 1", len(found))
	}
}
