package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// everyByte is a payload with every possible byte.
var everyByte = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

func letter(id byte) consumer.DeadLetter {
	at := time.Date(2025, 3, 4, 5, 6, 7, 891_234_000, time.UTC)
	return consumer.DeadLetter{
		ID: consumer.DeadLetterID{id},
		Record: dedup.Record{
			Key:         dedup.Key{Consumer: "billing", Tenant: "acme", ID: fmt.Sprint("order-", id)},
			Fingerprint: dedup.FingerprintOf([]byte{id}),
			Time:        at,
			Window:      48 * time.Hour,
		},
		Message: consumer.Message{
			ID: fmt.Sprint("order-", id), Tenant: "acme", Topic: "orders", OrderingKey: string(everyByte),
			Position: "orders/3/1042", Payload: everyByte,
			Headers: map[string]string{"trace": "abc", "binary": string(everyByte), "empty": ""}, Time: at, Attempt: 7,
		},
		Cause: observe.CauseExhausted,
		Error: "no such account",
	}
}

func park(t *testing.T, s *node, letters ...consumer.DeadLetter) {
	t.Helper()
	within(t, s, func(ctx context.Context, tx *sql.Tx) error {
		for _, l := range letters {
			if err := s.Park(ctx, tx, l); err != nil {
				return err
			}
		}
		return nil
	})
}

func letters(t *testing.T, s *node, f consumer.DeadLetterFilter) []consumer.DeadLetter {
	t.Helper()
	all, err := s.DeadLetters(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var ignoreDates = cmpopts.IgnoreFields(consumer.DeadLetter{}, "First", "Latest")

func TestParkKeepsEveryByte(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		full, bare := letter(1), consumer.DeadLetter{
			ID: consumer.DeadLetterID{2}, Cause: observe.CauseNoKey,
			Record: dedup.Record{Key: dedup.Key{Consumer: "billing"}},
		}
		before := time.Now().Add(-time.Second)
		park(t, s, full, bare)
		got := letters(t, s, consumer.DeadLetterFilter{})
		full.Times, bare.Times, bare.Record.Window = 1, 1, dedup.DefaultWindow
		if diff := cmp.Diff([]consumer.DeadLetter{bare, full}, got, ignoreDates, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		for _, l := range got {
			if l.First.Before(before) || l.First.After(time.Now().Add(time.Second)) || l.Latest.Before(l.First) {
				t.Errorf("parked between %v and %v", l.First, l.Latest)
			}
		}
	})
}

func TestParkTakesAnyText(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		l := letter(1)
		l.Error = "bad \xff bytes \x00 and NUL " + strings.Repeat("x", 100_000)
		l.Message.Topic, l.Message.Position = "to\x00pic\xfe", "\xff/3"
		park(t, s, l)
		got := letters(t, s, consumer.DeadLetterFilter{})[0]
		if !strings.HasPrefix(got.Error, "bad \uFFFD bytes \uFFFD and NUL xxx") || len(got.Error) > 9<<10 ||
			len(got.Error) < 8<<10 {
			t.Errorf("error of %d bytes: %.40q", len(got.Error), got.Error)
		}
		if got.Message.Topic != "to\uFFFDpic\uFFFD" || got.Message.Position != "\uFFFD/3" {
			t.Errorf("topic %q, position %q", got.Message.Topic, got.Message.Position)
		}
	})
}

func TestParkAgainUpdatesAndCounts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		l := letter(1)
		park(t, s, l)
		first := letters(t, s, consumer.DeadLetterFilter{})[0].First
		l.Error, l.Cause, l.Message.Attempt = "still no such account", observe.CauseUnprovable, 9
		park(t, s, l)
		park(t, s, l)
		got := letters(t, s, consumer.DeadLetterFilter{})
		l.Times = 3
		if diff := cmp.Diff([]consumer.DeadLetter{l}, got, ignoreDates); diff != "" {
			t.Error(diff)
		}
		if !got[0].First.Equal(first) || got[0].Latest.Before(first) {
			t.Errorf("first parked %v, was %v; latest %v", got[0].First, first, got[0].Latest)
		}
	})
}

func TestParkRollsBackWithItsTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		err := s.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
			if err := s.Park(t.Context(), tx, letter(1)); err != nil {
				return err
			}
			return errUndo
		})
		if !errors.Is(err, errUndo) {
			t.Fatal(err)
		}
		if n := len(letters(t, s, consumer.DeadLetterFilter{})); n != 0 {
			t.Errorf("%d letters", n)
		}
	})
}

func TestTake(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		park(t, s, letter(1), letter(2))
		within(t, s, func(ctx context.Context, tx *sql.Tx) error {
			if err := s.TakeDeadLetter(ctx, tx, letter(1)); err != nil {
				t.Error(err)
			}
			if err := s.TakeDeadLetter(ctx, tx, letter(1)); !errors.Is(err, consumer.ErrNotParked) || s.Retryable(err) {
				t.Errorf("taken twice: %v", err)
			}
			return nil
		})
		if got := letters(t, s, consumer.DeadLetterFilter{}); len(got) != 1 || got[0].ID != (consumer.DeadLetterID{2}) {
			t.Errorf("left: %v", got)
		}
	})
}

// Of two transactions that take the same dead letter at the same time, only one gets it.
func TestTakeRaces(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{Wait: time.Minute})
		park(t, s, letter(1))
		holding, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		take := func(then func()) error {
			return s.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
				err := s.TakeDeadLetter(t.Context(), tx, letter(1))
				then()
				return err
			})
		}
		go func() { done <- take(func() { close(holding); <-release }) }()
		<-holding
		second := make(chan error, 1)
		go func() { second <- take(func() {}) }()
		select {
		case err := <-second:
			t.Errorf("the second did not wait: %v", err)
			second <- err
		case <-time.After(50 * time.Millisecond):
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-second; !errors.Is(err, consumer.ErrNotParked) {
			t.Errorf("the second: %v", err)
		}
	})
}

func TestLettersFilters(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		var all []consumer.DeadLetter
		for id := byte(1); id <= 7; id++ {
			l := letter(id)
			if id%2 == 0 {
				l.Cause = observe.CauseMismatch
			}
			if id == 1 {
				// the first: SQLite's times of parking increase only within a consumer, and equal ones are ordered by
				// ID
				l.Record.Key.Consumer = "mail"
			}
			all = append(all, l)
		}
		park(t, s, all...)
		cursor := map[byte]consumer.DeadLetterCursor{}
		for _, l := range letters(t, s, consumer.DeadLetterFilter{}) {
			cursor[l.ID[0]] = l.Cursor()
		}
		for _, test := range []struct {
			name   string
			filter consumer.DeadLetterFilter
			want   []byte
		}{
			{"all", consumer.DeadLetterFilter{}, []byte{7, 6, 5, 4, 3, 2, 1}},
			{"one", consumer.DeadLetterFilter{ID: consumer.DeadLetterID{3}}, []byte{3}},
			{"consumer", consumer.DeadLetterFilter{Consumer: "mail"}, []byte{1}},
			{"cause", consumer.DeadLetterFilter{Cause: observe.CauseMismatch}, []byte{6, 4, 2}},
			{"both", consumer.DeadLetterFilter{Consumer: "mail", Cause: observe.CauseMismatch}, nil},
			{"page", consumer.DeadLetterFilter{Limit: 2}, []byte{7, 6}},
			{"next page", consumer.DeadLetterFilter{Limit: 2, After: cursor[6]}, []byte{5, 4}},
			{"last page", consumer.DeadLetterFilter{Limit: 2, After: cursor[1]}, nil},
		} {
			var got []byte
			for _, l := range letters(t, s, test.filter) {
				got = append(got, l.ID[0])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: %s", test.name, diff)
			}
		}
	})
}

// A dead letter is settled once its key is claimed with the same content, because a later delivery succeeded.
func TestSettledLettersAreShownAndSwept(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		same, other, unknown, unclaimed, keyless := letter(1), letter(2), letter(3), letter(4), letter(5)
		other.Cause = observe.CauseMismatch
		unknown.Record.Fingerprint = dedup.Fingerprint{}
		keyless.Record.Key.ID = ""
		park(t, s, same, other, unknown, unclaimed, keyless)
		claimed := []dedup.Record{same.Record, other.Record, unknown.Record}
		claimed[1].Fingerprint = dedup.FingerprintOf([]byte("what the key was used for"))
		for i := range claimed {
			claimed[i].Time = time.Time{}
		}
		claim(t, s, claimed...)

		settled := map[byte]bool{}
		for _, l := range letters(t, s, consumer.DeadLetterFilter{}) {
			settled[l.ID[0]] = l.Settled
		}
		if diff := cmp.Diff(map[byte]bool{1: true, 2: false, 3: true, 4: false, 5: false}, settled); diff != "" {
			t.Error(diff)
		}
		for {
			swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "test", Lease: time.Minute, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			if swept.Done {
				break
			}
		}
		var left []byte
		for _, l := range letters(t, s, consumer.DeadLetterFilter{}) {
			left = append(left, l.ID[0])
		}
		if diff := cmp.Diff([]byte{5, 4, 2}, left); diff != "" {
			t.Errorf("after the sweep: %s", diff)
		}
	})
}

// A letter was parked while the clock was wrong. Later ones have the right times.
func TestParkedWhileTheClockWasWrong(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		park(t, s, letter(1))
		exec(t, db.DB, `UPDATE dead_letters SET first_parked = first_parked + `+db.later)
		park(t, s, letter(2))
		if n := db.count(t, `SELECT count(*) FROM dead_letters WHERE first_parked > `+db.clock); n != 1 {
			t.Errorf("%d letters have a time in the future, want the first one", n)
		}
	})
}

// SQLite's clock shows milliseconds. Letters that are parked within one have different times all the same.
func TestSQLiteParksWithinOneMillisecond(t *testing.T) {
	d := openSQLite(t)
	var letters []consumer.DeadLetter
	for id := range byte(100) {
		letters = append(letters, letter(id))
	}
	park(t, d.open(t, d.dsn, deduptest.Options{}), letters...) // in one transaction
	var n int
	if err := d.db.QueryRow(`SELECT count(DISTINCT first_parked) FROM dead_letters`).Scan(&n); err != nil ||
		n != len(letters) {
		t.Errorf("%d letters have %d times, %v", len(letters), n, err)
	}
}

// A letter that was shortened has its whole payload as soon as it can be stored, and keeps it.
func TestParkKeepsTheLongerPayload(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		whole, short := letter(1), letter(1)
		sum := sha256.Sum256(everyByte)
		short.Message.Payload = everyByte[:10]
		short.Message.Headers = map[string]string{"txonce-shortened": fmt.Sprintf(`{"fields":["payload"],"payload_bytes":256,"payload_sha256":"%x"}`, sum)}
		for i, step := range []struct {
			park      consumer.DeadLetter
			bytes     int
			shortened bool
		}{{short, 10, true}, {whole, 256, false}, {short, 256, false}} {
			park(t, s, step.park)
			got := letters(t, s, consumer.DeadLetterFilter{})[0]
			if _, shortened := got.Shortened(); len(got.Message.Payload) != step.bytes || shortened != step.shortened {
				t.Errorf("step %d: %d bytes, shortened: %v", i, len(got.Message.Payload), shortened)
			}
		}
	})
}
