package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// sequenced runs each transaction of InTx between two others: its claim travels with the COMMIT of the one before, and another claim
// with its own COMMIT. With first, there is none before.
type sequenced struct {
	*node
	first bool
}

var others atomic.Int64

func (s sequenced) InTx(ctx context.Context, recs []dedup.Record, fn func(pgx.Tx, []dedup.Claim) error) error {
	q := s.Sequence()
	defer q.Close()
	if !s.first {
		if err := q.InTx(ctx, nil, recs, doNothing); err != nil {
			return err
		}
	}
	return q.InTx(ctx, recs, ordinaryRecord(fmt.Sprint("another ", others.Add(1))), fn)
}

// A Store keeps its promises when claims travel with COMMIT.
func TestStoreInSequence(t *testing.T) {
	t.Parallel() // beside the other suites
	deduptest.TestStore(t, deduptest.Harness[pgx.Tx]{
		New: func(t *testing.T) deduptest.DB[pgx.Tx] {
			db := newDB(t, testdb.Postgres(t))
			open, faulty := db.Open, db.Faulty
			db.Open = func(t *testing.T, o deduptest.Options) dedup.Store[pgx.Tx] {
				return sequenced{node: open(t, o).(*node)}
			}
			db.Faulty = func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[pgx.Tx] {
				return sequenced{faulty(t, o, f).(*node), true} // the fault hits the first COMMIT
			}
			db.SetClock = func(s dedup.Store[pgx.Tx], now func() time.Time) { pgxstore.SetClock(s.(sequenced).Store, now) }
			db.Connections = func(_ *testing.T, s dedup.Store[pgx.Tx]) int { return int(s.(sequenced).pool.Stat().AcquiredConns()) }
			return db
		},
		Isolations: isolations,
		Select:     func(_, level string) bool { return level == "" || level == string(pgx.ReadCommitted) },
		Codes:      deduptest.PostgresCodes(),
	})
}

// inOrder is a consumer with one transaction per message.
func inOrder(t *testing.T, store dedup.Store[pgx.Tx], handle consumer.Handler[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[pgx.Tx]{Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, MaxBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeEffect(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	return effect(ctx, tx, m.ID)
}

func numbered(prefix string, n int) []*consumer.Message {
	msgs := make([]*consumer.Message, n)
	for i := range msgs {
		msgs[i] = &consumer.Message{ID: fmt.Sprint(prefix, i), Time: time.Now(), Attempt: 1}
	}
	return msgs
}

// A message that waits takes two round trips: the claim travels with the COMMIT before it.
func TestRoundTripsInSequence(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	c := inOrder(t, store, writeEffect)
	for _, prefix := range []string{"prepares statements ", "m"} {
		trips.take()
		for _, err := range c.ProcessBatch(t.Context(), numbered(prefix, 3)) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// The tracer does not see what travels together.
	want := []string{`begin isolation level + insert into processed_messages`, `insert into effects`, `insert into effects`, `insert into effects`, `commit`}
	if diff := cmp.Diff(want, trips.take()); diff != "" {
		t.Errorf("round trips (-want +got):\n%s", diff)
	}
}

// While another transaction holds the next key, the message before is committed and answered.
func TestASequenceDoesNotWaitForTheNextKey(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	store := newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: 500 * time.Millisecond})
	other := newStore(t, pgxstore.Config{Pool: db.pool})
	ctx, next := t.Context(), ordinaryRecord("next")
	err := other.InTx(ctx, next, func(pgx.Tx, []dedup.Claim) error {
		q := store.Sequence()
		defer q.Close()
		if err := q.InTx(ctx, ordinaryRecord("first"), next, func(tx pgx.Tx, _ []dedup.Claim) error { return effect(ctx, tx, "first") }); err != nil {
			t.Errorf("the first: %v", err)
		}
		if diff := cmp.Diff([]string{"first"}, db.strings(t, `SELECT name FROM effects`)); diff != "" {
			t.Errorf("effects while the claim of the next message waits (-want +got):\n%s", diff)
		}
		if err := q.InTx(ctx, next, nil, doNothing); !errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("the next one = %v, want ErrInFlight", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing stays claimed after Close, after other records, and after a COMMIT that failed.
func TestASequenceThatEndsHoldsNoClaim(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	db.exec(t, `CREATE TABLE parents (id int PRIMARY KEY); CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
	store := newStore(t, pgxstore.Config{Pool: db.pool})
	ctx := t.Context()
	for name, tt := range map[string]struct {
		fn  func(pgx.Tx, []dedup.Claim) error
		end func(dedup.Sequence[pgx.Tx]) error
		err string
	}{
		"Close":         {doNothing, func(q dedup.Sequence[pgx.Tx]) error { q.Close(); return nil }, ""},
		"other records": {doNothing, func(q dedup.Sequence[pgx.Tx]) error { return q.InTx(ctx, ordinaryRecord("other"), nil, doNothing) }, ""},
		"a failed COMMIT": {func(tx pgx.Tx, _ []dedup.Claim) error {
			_, err := tx.Exec(ctx, `INSERT INTO children VALUES (1)`)
			return err
		}, func(dedup.Sequence[pgx.Tx]) error { return nil }, "23503"},
		"a failed handler": {func(pgx.Tx, []dedup.Claim) error { return errors.New("no") }, func(dedup.Sequence[pgx.Tx]) error { return nil }, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			q := store.Sequence()
			defer q.Close()
			next := ordinaryRecord("after " + name)
			err := q.InTx(ctx, ordinaryRecord("before "+name), next, tt.fn)
			if says := fmt.Sprint(err); err == nil && tt.err != "" || err != nil && (tt.err == "" || !strings.Contains(says, tt.err) || store.Retryable(err)) {
				t.Errorf("InTx = %v, want an error of the handler that says %q", err, tt.err)
			}
			if err := tt.end(q); err != nil {
				t.Error(err)
			}
			verdict := dedup.Verdict(0)
			err = again(store, func() error { // the server may still be about to roll back
				return store.InTx(ctx, next, func(_ pgx.Tx, claims []dedup.Claim) error { verdict = claims[0].Verdict; return nil })
			})
			if err != nil || verdict != dedup.First {
				t.Errorf("the claim that was made ahead left %v, %v; want that the key is free", verdict, err)
			}
		})
	}
}
