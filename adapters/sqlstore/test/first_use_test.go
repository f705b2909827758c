package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// The first use of a Store may be in a transaction that has set another schema.
func TestTheFirstEnqueueFindsTheStoresSchema(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	s := d.open(t, d.dsn, deduptest.Options{})
	err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
		if _, err := tx.Exec(`SET LOCAL search_path = pg_catalog`); err != nil {
			return err
		}
		return s.Enqueue(t.Context(), tx, outbox.Message{ID: "m", Topic: "t", Payload: []byte("p")})
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := s.Outbox().Stats(t.Context()); err != nil || stats.Pending != 1 {
		t.Errorf("Stats = %+v, %v; want one pending message", stats, err)
	}
}

// A worker starts its consumer and its relay at the same time on a new Store. The race detector checks this test.
func TestTheFirstUsesMayComeAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		for range 5 {
			s := db.open(deduptest.Options{})
			var g errgroup.Group
			for _, use := range []func(ctx context.Context) error{
				func(ctx context.Context) error { return s.RegisterSources(ctx, "billing", []string{"sqs queue a"}) },
				func(ctx context.Context) error { return s.Register(ctx, "billing", time.Hour) },
				func(ctx context.Context) error {
					_, err := s.Open(ctx, driver.SessionOptions{Name: "relay", TTL: time.Second})
					return err
				},
				func(ctx context.Context) error { _, err := s.Outbox().Stats(ctx); return err },
				func(ctx context.Context) error {
					_, err := s.HeldKeys(ctx, []dedup.Key{record("held").Key})
					return err
				},
				func(ctx context.Context) error {
					return s.InTx(ctx, []dedup.Record{record(t.Name())}, func(tx *sql.Tx, _ []dedup.Claim) error {
						return s.Enqueue(ctx, tx, outbox.Message{ID: "m", Topic: "t", Payload: []byte("p")})
					})
				},
			} {
				g.Go(func() error { return use(t.Context()) })
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
