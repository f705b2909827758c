package pgxstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A short wait for a claim ends with the claim: the handler's statements, and those of the caller's own transaction, wait as the session
// says. It costs no round trip.
func TestClaimWaitEndsWithTheClaim(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	ctx := dedup.WithClaimWait(t.Context(), 50*time.Millisecond)
	want := func(tx pgx.Tx) error {
		got, err := lockWait(ctx, tx)
		if err == nil && got != "7s 0" {
			err = errors.New("lock_timeout and statement_timeout are " + got)
		}
		return err
	}
	recs := func(ids ...string) (recs []dedup.Record) {
		for _, id := range ids {
			recs = append(recs, ordinaryRecord(id)...)
		}
		return recs
	}
	own := func(ids ...string) error {
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '7s'`); err != nil {
				return err
			}
			_, err := store.Claim(ctx, tx, recs(ids...))
			return errors.Join(err, want(tx))
		})
	}
	for _, ids := range [][]string{{"a"}, {"a"}, {"b", "c"}, {"b", "c"}, {"a", "d"}} {
		if err := own(ids...); err != nil {
			t.Errorf("claim of %v: %v", ids, err)
		}
	}
	unchanged := func(tx pgx.Tx, _ []dedup.Claim) error {
		got, err := lockWait(ctx, tx)
		if err == nil && got != "0 0" {
			err = errors.New("lock_timeout and statement_timeout are " + got)
		}
		return err
	}
	for _, ids := range [][]string{{"e"}, {"e"}, {"f", "g"}, {"f", "g"}} {
		if err := store.InTx(ctx, recs(ids...), unchanged); err != nil {
			t.Errorf("InTx of %v: %v", ids, err)
		}
	}
	trips.take()
	if err := store.InTx(ctx, recs("h"), doNothing); err != nil {
		t.Error(err)
	}
	if got := trips.take(); len(got) != 2 || got[0] != `begin isolation level + insert into processed_messages` {
		t.Errorf("round trips %q", got)
	}
}
