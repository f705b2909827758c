package pgxstore_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// After a failover a pool may keep connections to the former primary, which accepts no writes. Whatever meets one
// closes it.
func TestASessionThatAcceptsNoWritesIsClosed(t *testing.T) {
	t.Parallel()
	pool := testPool(t, testdb.Schema(t, testdb.Postgres(t)), 1)
	makeTables(t, pool, ``)
	ctx := t.Context()
	s := newStore(t, pgxstore.Config{Pool: pool})
	session, err := s.Open(ctx, driver.SessionOptions{Name: "relay", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(ctx))
	claim := func(consumer string) error {
		rec := dedup.Record{Key: dedup.Key{Consumer: consumer, ID: rand.Text()}, Time: time.Now()}
		return s.InTx(ctx, []dedup.Record{rec}, func(pgx.Tx, []dedup.Claim) error { return nil })
	}
	for what, tt := range map[string]struct {
		pool *pgxpool.Pool
		do   func() error
	}{
		"a claim":                {pool, func() error { return claim("billing") }},
		"the first claim of one": {pool, func() error { return claim(rand.Text()) }},
		"Register":               {pool, func() error { return s.Register(ctx, rand.Text(), 0) }},
		"Purge": {pool, func() error {
			_, err := s.Purge(ctx, dedup.Sweep{Owner: rand.Text(), Lease: time.Millisecond, Limit: 10})
			return err
		}},
		"an operator's request": {pool, func() error {
			return s.Activity().RecordActivity(ctx,
				[]ops.Activity{{Minute: time.Now(), Consumer: "billing", Node: rand.Text()}})
		}},
		"Probe": {pool, func() error {
			_, err := s.Operator().(ops.Prober).Probe(ctx,
				dedup.Record{Key: dedup.Key{Consumer: "billing", ID: rand.Text()}, Time: time.Now()})
			return err
		}},
		"a relay": {pgxstore.RelayPool(session), func() error {
			_, err := session.Renew(ctx)
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
			for _, conn := range tt.pool.AcquireAllIdle(ctx) {
				if _, err := conn.Exec(ctx, `SET default_transaction_read_only = on`); err != nil {
					t.Fatal(err)
				}
				conn.Release()
			}
			if first, then := tt.do(), tt.do(); first == nil || then != nil {
				t.Errorf("in a session that accepts no writes: %v, and then %v; want an error, and then nil on another connection", first, then)
			}
			tt.pool.Reset()
		})
	}
}
