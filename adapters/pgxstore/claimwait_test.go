package pgxstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A short wait for a claim ends with the claim: the handler's statements, and those of the caller's own transaction,
// wait as the session says. It costs no round trip.
func TestClaimWaitEndsWithTheClaim(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	ctx := driver.WithClaimWait(t.Context(), 50*time.Millisecond)
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

// A sweep deletes the row of a duplicate before it is read, and another process claims the key again. The handler of
// the other message of the batch waits as the session says.
func TestClaimWaitOfADuplicateThatVanishes(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	again := func() {
		if err := db.store.InTx(t.Context(), ordinaryRecord("old"), doNothing); err != nil {
			t.Error(err)
		}
	}
	again()
	h, swept, claimed := &sentBatch{}, false, false
	store, _ := tracedStore(t, db, h)
	h.on = func(sql string) {
		switch {
		case strings.HasPrefix(sql, "SELECT key, fingerprint") && !swept:
			swept = true
			db.exec(t, testdb.Unguarded(`DELETE FROM processed_messages WHERE id = 'old'`))
		case strings.HasPrefix(sql, "INSERT INTO ") && swept && !claimed:
			claimed = true
			again()
		}
	}
	ctx := driver.WithClaimWait(t.Context(), 10*time.Second)
	err := store.InTx(ctx, append(ordinaryRecord("new"), ordinaryRecord("old")...), func(tx pgx.Tx, claims []dedup.Claim) error {
		wait, err := lockWait(ctx, tx)
		if claims[0].Verdict != dedup.First || claims[1].Verdict != dedup.Duplicate || wait != "0 0" {
			t.Errorf("verdicts %v, %v; lock_timeout and statement_timeout are %s; want first, duplicate, 0 0",
				claims[0].Verdict, claims[1].Verdict, wait)
		}
		return err
	})
	if err != nil || !claimed {
		t.Errorf("InTx: %v; the key was claimed again: %v", err, claimed)
	}
}
