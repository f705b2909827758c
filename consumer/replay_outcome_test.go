package consumer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Only a replay that failed because of its message counts as parked, which calls a person.
func TestOutcomesOfReplays(t *testing.T) {
	type replays struct {
		*consumer.Consumer[tx]
		db     *deduptest.Database
		letter consumer.DeadLetter
	}
	for _, tc := range []struct {
		name, id string
		replay   func(ctx context.Context, r replays) error
		want     string
	}{
		{"poison", "1", func(ctx context.Context, r replays) error {
			_, err := r.Replay(ctx, r.letter, consumer.Replay{})
			return err
		}, "parked(handler) 1"},
		{"no key", "", func(ctx context.Context, r replays) error {
			_, err := r.Replay(ctx, r.letter, consumer.Replay{Key: "2"})
			return err
		}, "parked(handler) 2"},
		{"in flight", "1", func(ctx context.Context, r replays) (err error) {
			_ = consumertest.NewStoreOn(r.db).InTx(ctx, []dedup.Record{r.letter.Record}, func(tx, []dedup.Claim) error {
				_, err = r.Replay(ctx, r.letter, consumer.Replay{})
				return errPoison
			})
			return err
		}, "held(in_flight) 1"},
		{"cancelled", "1", func(ctx context.Context, r replays) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := r.Replay(ctx, r.letter, consumer.Replay{})
			return err
		}, "held(cancelled) 1"},
		{"discarded meanwhile", "", func(ctx context.Context, r replays) error {
			if err := r.Discard(ctx, r.letter); err != nil {
				return err
			}
			if _, err := r.Replay(ctx, r.letter, consumer.Replay{Key: "fine", Repair: func(m *consumer.Message) error { m.ID, m.Payload = "fine", nil; return nil }}); !errors.Is(err, consumer.ErrNotParked) {
				return errors.New("want ErrNotParked")
			}
			return errPoison
		}, "duplicate fine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := &events{}
			store := consumertest.NewStore()
			c := newConsumer(t, config{Store: store, Handle: poison})
			process(t, c, msg(tc.id, "poison"))
			r := replays{c, store.Database(), letters(t, c)[0]}
			if err := tc.replay(driver.WithTrace(t.Context(), &consumer.Trace{Done: seen.trace().Done}),
				r); err == nil {
				t.Error("the replay succeeded")
			}
			if diff := cmp.Diff([]string{tc.want}, seen.take()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
