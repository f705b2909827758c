package deduptest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// sharedOutbox drives the outbox of a Store as that of any database.
func sharedOutbox() outboxtest.Harness[*deduptest.Tx] {
	return outboxtest.Harness[*deduptest.Tx]{
		New: func(_ *testing.T, o outboxtest.Options) outboxtest.Outbox[*deduptest.Tx] {
			s := deduptest.NewStore()
			s.Outbox().KeepSent = o.KeepSent
			return outboxtest.Outbox[*deduptest.Tx]{
				Writer: s, Queue: s.Outbox(), Operations: s.Outbox(),
				InTx: func(ctx context.Context, fn func(*deduptest.Tx) error) error {
					return s.InTx(ctx, nil, func(tx *deduptest.Tx, _ []dedup.Claim) error { return fn(tx) })
				},
				SetBack: s.Outbox().SetBack, LockOrderingKey: s.LockOrderingKey,
				Sent: func(*testing.T) []string { return s.Outbox().Sent() },
			}
		},
		Features: outboxtest.Features{LateSequence: true},
		Run:      synctest.Test,
	}
}

func TestStoreHasAnOutbox(t *testing.T) { outboxtest.TestStore(t, sharedOutbox()) }

// enqueue adds an effect and a message in one transaction, and returns how many of each are there afterwards.
func enqueue(t *testing.T, s *deduptest.Store, do func(tx *deduptest.Tx) error) (
	effects int, messages int64, err error,
) {
	t.Helper()
	err = s.InTx(t.Context(), []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		if err := errors.Join(tx.Add("1"), s.Enqueue(t.Context(), tx, outbox.Message{ID: "1", Topic: "t"})); err != nil {
			t.Error(err)
		}
		return do(tx)
	})
	st, statsErr := s.Outbox().Stats(t.Context())
	if statsErr != nil {
		t.Fatal(statsErr)
	}
	return s.Database().Count("1"), st.Pending, err
}

func TestMessagesExistExactlyIfTheirTransactionsDo(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(tx *deduptest.Tx) error
		want int
	}{
		{"commit", func(*deduptest.Tx) error { return nil }, 1},
		{"error of the handler", func(*deduptest.Tx) error { return errHandler }, 0},
		{"a statement fails", func(tx *deduptest.Tx) error { _ = tx.Add(""); return nil }, 0},
		{"the connection is lost", func(tx *deduptest.Tx) error { tx.Lose(); return nil }, 0},
		{"the handler ends the transaction", func(tx *deduptest.Tx) error { _ = tx.Commit(t.Context()); return nil }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			effects, messages, err := enqueue(t, deduptest.NewStore(), tc.do)
			if effects != tc.want || messages != int64(tc.want) || (err == nil) != (tc.want == 1) {
				t.Errorf("%d effects, %d messages, error %v; want %d of each", effects, messages, err, tc.want)
			}
		})
	}
}

func TestTheOutboxGoesBackWithItsDatabase(t *testing.T) {
	s := deduptest.NewStore()
	none := s.Database().Snapshot()
	if _, n, err := enqueue(t, s, func(*deduptest.Tx) error { return nil }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	one := s.Database().Snapshot()
	count := func() int64 {
		st, err := s.Outbox().Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Pending
	}
	s.Database().Promote(none)
	if n := count(); n != 0 {
		t.Errorf("%d messages after the database went back to its beginning", n)
	}
	s.Database().Restore(one)
	if n := count(); n != 1 {
		t.Errorf("%d messages after the backup was restored", n)
	}
	s.Database().Stop()
	if _, err := s.Outbox().Stats(t.Context()); !errors.Is(err, deduptest.ErrDown) {
		t.Errorf("Stats of a stopped database: %v", err)
	}
	s.Database().Start()
	if n := count(); n != 1 {
		t.Errorf("%d messages after a restart", n)
	}
}

func TestOnStatementMayFailAHandler(t *testing.T) {
	s := deduptest.NewStore()
	var said []string
	s.OnBegin = func(_ context.Context, tx *deduptest.Tx) {
		tx.OnStatement = func(what string) error {
			if said = append(said, what); what == "update b" {
				return errHandler
			}
			return nil
		}
	}
	err := s.InTx(t.Context(), []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		_ = tx.Add("a")
		if err := tx.Put(t.Context(), "b", 1); !errors.Is(err, errHandler) {
			t.Errorf("Put: %v", err)
		}
		return nil // the transaction cannot commit
	})
	if err == nil || s.Database().Count("a") != 0 {
		t.Errorf("error %v, %d effects, after a statement that failed", err, s.Database().Count("a"))
	}
	if len(said) != 2 || said[0] != "add a" {
		t.Errorf("statements %q", said)
	}
}

var errHandler = errors.New("handler failed")
