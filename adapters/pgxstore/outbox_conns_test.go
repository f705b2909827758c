package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

const relaySettings = `SELECT concat_ws(' ', current_setting('enable_seqscan'), current_setting('plan_cache_mode'),
	current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('default_transaction_isolation'))`

// The settings of the relay's statements are on connections of its own. The application's connections never keep them,
// also where the outbox uses one of these for a transaction. The relay's connections are made like the application's,
// but are not handed out by its hooks, and end with the last session.
func TestOutboxRelayHasConnectionsOfItsOwn(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	cfg := db.pool.Config()
	cfg.MaxConns = 1
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET txonce.made = 'by the application'`)
		return err
	}
	cfg.AfterRelease = func(conn *pgx.Conn) bool {
		_, err := conn.Exec(context.Background(), `RESET enable_seqscan`)
		return err == nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := newStore(t, pgxstore.Config{Pool: pool})
	if err := store.Register(t.Context(), "billing", time.Hour); err != nil {
		t.Fatal(err)
	}
	settings := func(pool *pgxpool.Pool, sql string) (got string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := settings(pool, relaySettings)
	ignored := goleak.IgnoreCurrent()
	s, err := store.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	d := &holding{db, s}
	for range 2 {
		if _, err := s.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.enqueue(t, "a")
	settle(t, d, driver.Parked, d.lease(t)...)
	d.maintain(t)
	if _, err := store.Outbox().Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Outbox().Unpark(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if after := settings(pool, relaySettings); after != before {
		t.Errorf("a connection of the application has the settings %q, and had %q", after, before)
	}
	own := pgxstore.RelayPool(s)
	if got, want := settings(own, relaySettings), "off force_generic_plan 5s 5s read committed"; got != want {
		t.Errorf("the relay's connection has the settings %q, want %q", got, want)
	}
	if got := settings(own, `SELECT current_setting('txonce.made', true)`); got != "by the application" {
		t.Error("the relay's connection was not made by AfterConnect of Config.Pool")
	}
	other, err := store.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Renew(t.Context()); err != nil {
		t.Errorf("a session after the end of another one: %v", err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaktest.None(t, ignored)
}

// A session that moves delayed messages wakes the relays that hold their shards.
func TestOutboxWakesForDelayedMessages(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	wake, stop := pgxstore.Subscribe(d.store)
	defer stop()
	other := newStore(t, pgxstore.Config{Pool: d.pool}) // its commits do not wake the sessions of d.store
	later := outbox.Message{ID: "later", Topic: "events", NotBefore: time.Now().Add(200 * time.Millisecond)}
	err := again(d.store, func() error {
		return pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error { return other.Enqueue(t.Context(), tx, later) })
	})
	if err != nil {
		t.Fatal(err)
	}
	pause(300 * time.Millisecond) // it is due by the database's clock
	drain(wake)                   // LISTEN has begun
	d.maintain(t)
	if !woken(wake) {
		t.Error("not woken for a message that is due")
	}
	if got := leasedIDs(d.lease(t)); len(got) != 1 {
		t.Errorf("leased %v, want the message that is due", got)
	}
}

// RunOnce of a relay calls no Maintain. Its polls move delayed messages that are due.
func TestOutboxLeaseWithoutMaintain(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	d.lease(t)
	later := outbox.Message{ID: "later", Topic: "events", NotBefore: time.Now().Add(100 * time.Millisecond)}
	err := again(d.store, func() error {
		return pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error { return d.store.Enqueue(t.Context(), tx, later) })
	})
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); len(d.lease(t)) == 0; pause(10 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("a message that is due was not leased")
		}
	}
}
