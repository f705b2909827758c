package consumertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

func letter(n byte) consumer.DeadLetter {
	return consumer.DeadLetter{
		ID: consumer.DeadLetterID{n}, Cause: observe.CauseExhausted, Error: "poison",
		Record: dedup.Record{
			Key:         dedup.Key{Consumer: "billing", ID: string('a' + rune(n))},
			Fingerprint: dedup.FingerprintOf([]byte{n}),
		},
		Message: consumer.Message{
			OrderingKey: "\xff\x00", Payload: []byte{0, 255},
			Headers: map[string]string{"\xff": "\x00"}, Attempt: 3,
		},
	}
}

func in(t *testing.T, s *consumertest.Store, fn func(tx tx) error) error {
	t.Helper()
	return s.InTx(t.Context(), nil, func(tx tx, _ []dedup.Claim) error { return fn(tx) })
}

func park(t *testing.T, s *consumertest.Store, l consumer.DeadLetter) {
	t.Helper()
	if err := in(t, s, func(tx tx) error { return s.Park(t.Context(), tx, l) }); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, s *consumertest.Store, f consumer.DeadLetterFilter) []consumer.DeadLetter {
	t.Helper()
	found, err := s.DeadLetters(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestParkingLot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := consumertest.NewStore()
		first := time.Now()
		park(t, s, letter(1))
		<-time.After(time.Hour)
		again := letter(1)
		again.Cause = observe.CauseMismatch
		park(t, s, again)
		again.Times, again.First, again.Latest = 2, first, time.Now()
		if diff := cmp.Diff([]consumer.DeadLetter{again}, list(t, s, consumer.DeadLetterFilter{})); diff != "" {
			t.Error(diff)
		}
		errBack := errors.New("roll back")
		if err := in(t, s, func(tx tx) error {
			return errors.Join(s.TakeDeadLetter(t.Context(), tx, again), s.Park(t.Context(), tx, letter(2)), errBack)
		}); !errors.Is(err, errBack) || len(list(t, s, consumer.DeadLetterFilter{})) != 1 {
			t.Errorf("rolled back: %v, %d letters", err, len(list(t, s, consumer.DeadLetterFilter{})))
		}
		if err := in(t, s, func(tx tx) error { return s.Park(t.Context(), tx, consumer.DeadLetter{}) }); err == nil {
			t.Error("a letter without ID is parked")
		}
	})
}

func TestOfTwoThatTakeOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := consumertest.NewStore()
		park(t, s, letter(1))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := in(t, s, func(tx tx) error {
				defer func() { <-time.After(time.Minute) }()
				return s.TakeDeadLetter(t.Context(), tx, letter(1))
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		err := in(t, s, func(tx tx) error { return s.TakeDeadLetter(t.Context(), tx, letter(1)) })
		if !errors.Is(err, consumer.ErrNotParked) || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v; want ErrNotParked after a minute", time.Since(start), err)
		}
		wg.Wait()
	})
}

func TestLetters(t *testing.T) {
	db := deduptest.NewDatabase()
	at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	db.Now = func() time.Time { return at }
	s := consumertest.NewStoreOn(db)
	for n := range byte(5) {
		l := letter(n + 1)
		if n == 2 {
			l.Cause = observe.CauseNoKey
		}
		if n == 3 {
			l.Record.Key.Consumer = "shipping"
		}
		park(t, s, l)
		if n != 2 { // 3 and 4 are of one time
			at = at.Add(time.Second)
		}
	}
	cursor := list(t, s, consumer.DeadLetterFilter{})[1].Cursor()
	for _, tc := range []struct {
		name   string
		filter consumer.DeadLetterFilter
		want   []byte
	}{
		{"all", consumer.DeadLetterFilter{}, []byte{5, 4, 3, 2, 1}},
		{"id", consumer.DeadLetterFilter{ID: consumer.DeadLetterID{4}}, []byte{4}},
		{"consumer", consumer.DeadLetterFilter{Consumer: "billing"}, []byte{5, 3, 2, 1}},
		{"cause", consumer.DeadLetterFilter{Cause: observe.CauseNoKey}, []byte{3}},
		{"page", consumer.DeadLetterFilter{After: cursor, Limit: 2}, []byte{3, 2}},
		{"none", consumer.DeadLetterFilter{Consumer: "shipping", Cause: observe.CauseNoKey}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []byte
			for _, l := range list(t, s, tc.filter) {
				got = append(got, l.ID[0])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSettledLettersShowAndGo(t *testing.T) {
	s := consumertest.NewStore()
	for n := range byte(3) {
		park(t, s, letter(n+1))
	}
	other := letter(3).Record
	other.Fingerprint = dedup.FingerprintOf([]byte("other"))
	if err := s.InTx(t.Context(), []dedup.Record{letter(2).Record, other},
		func(*deduptest.Tx, []dedup.Claim) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for n, l := range list(t, s, consumer.DeadLetterFilter{}) {
		if l.Settled != (n == 1) {
			t.Errorf("letter %d: settled %v", n, l.Settled)
		}
	}
	if _, err := s.Purge(context.Background(), dedup.Sweep{}); err != nil {
		t.Error(err)
	}
	if left := list(t, s, consumer.DeadLetterFilter{}); len(left) != 2 || left[0].Settled || left[1].Settled {
		t.Errorf("left: %v", left)
	}
}
