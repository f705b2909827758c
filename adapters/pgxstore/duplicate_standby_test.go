//go:build unix

package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A redelivered message is looked for by a read, which a standby would answer. The standby that is promoted next may
// lack the row.
func TestRedeliveredOnAStandby(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	primary := testdb.StartPostgres(t)
	makeTables(t, testPool(t, primary.DSN, 1), `CREATE TABLE effects (name text NOT NULL)`)
	first := append(ordinaryRecord("k"), ordinaryRecord("l")...)
	if err := newStore(t, pgxstore.Config{Pool: testPool(t, primary.DSN, 2)}).InTx(t.Context(), first,
		doNothing); err != nil {
		t.Fatal(err)
	}
	standby := primary.StartStandby(t)

	cfg, err := pgxpool.ParseConfig(primary.DSN)
	if err != nil {
		t.Fatal(err)
	}
	to := primary.Port
	cfg.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
		cfg.Port = uint16(to)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := newStore(t, pgxstore.Config{Pool: pool})
	claim := func(recs []dedup.Record) (verdict dedup.Verdict, err error) {
		err = store.InTx(t.Context(), recs, func(_ pgx.Tx, claims []dedup.Claim) error {
			verdict = claims[0].Verdict
			return nil
		})
		return verdict, err
	}
	one, batch := redeliveredRecord("k"), append(redeliveredRecord("k"), redeliveredRecord("l")...)
	for _, recs := range [][]dedup.Record{one, batch} {
		if verdict, err := claim(recs); err != nil || verdict != dedup.Duplicate {
			t.Fatalf("%d messages on the primary: %v, %v", len(recs), verdict, err)
		}
	}
	to = standby.Port
	pool.Reset()
	for _, recs := range [][]dedup.Record{one, batch} {
		if verdict, err := claim(recs); !store.Retryable(err) {
			t.Errorf("%d messages on the standby: %v, %v; want a retryable error", len(recs), verdict, err)
		}
	}
}
