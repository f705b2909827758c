package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

func testPool(tb testing.TB, dsn string, conns int) *pgxpool.Pool {
	tb.Helper()
	pool := newPool(tb, dsn, conns)
	tb.Cleanup(pool.Close)
	return pool
}

func newPool(tb testing.TB, dsn string, conns int) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return pool
}

// keptPools are pools that no test uses, by DSN and size.
var keptPools = struct {
	mu   sync.Mutex
	idle map[string][]*pgxpool.Pool
}{idle: map[string][]*pgxpool.Pool{}}

// keptPool is testPool with the connections of an earlier test, if its schema is used again. It is for tests that leave
// no setting in a session. To begin a session costs PostgreSQL more than most cases of a suite do.
func keptPool(tb testing.TB, dsn string, conns int) *pgxpool.Pool {
	tb.Helper()
	name := fmt.Sprint(dsn, " ", conns)
	keptPools.mu.Lock()
	defer keptPools.mu.Unlock()
	var pool *pgxpool.Pool
	if idle := keptPools.idle[name]; len(idle) > 0 {
		pool, keptPools.idle[name] = idle[len(idle)-1], idle[:len(idle)-1]
	} else {
		pool = newPool(tb, dsn, conns)
	}
	tb.Cleanup(func() {
		for began := time.Now(); pool.Stat().AcquiredConns() != 0; <-time.After(time.Millisecond) {
			// a NOTIFY may still be running
			if time.Since(began) > time.Minute {
				tb.Errorf("%d connections were not given back", pool.Stat().AcquiredConns())
				return
			}
		}
		if tb.Failed() {
			pool.Close()
			return
		}
		ctx := context.WithoutCancel(tb.Context())
		for i, conn := range pool.AcquireAllIdle(ctx) {
			if i >= 3 { // most cases need no more, and the server has a limit
				_ = conn.Conn().Close(ctx)
			}
			conn.Release()
		}
		keptPools.mu.Lock()
		defer keptPools.mu.Unlock()
		keptPools.idle[name] = append(keptPools.idle[name], pool)
	})
	return pool
}

// newStore returns a store with a ClaimTimeout that suits a busy machine, unless cfg sets one. The limit also applies
// to BEGIN.
func newStore(tb testing.TB, cfg pgxstore.Config) *pgxstore.Store {
	tb.Helper()
	if cfg.ClaimTimeout == 0 {
		cfg.ClaimTimeout = 2 * time.Minute
	}
	s, err := pgxstore.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// again repeats f while its error may be temporary: on a busy machine a lock may time out, or a transaction may be idle
// too long.
func again(s *pgxstore.Store, f func() error) error {
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := f()
		passes := s.Retryable(err) || errors.Is(err, dedup.ErrInFlight)
		if !passes || time.Since(began) > 2*time.Minute {
			return err
		}
	}
}

// makeTables creates txonce's tables and then runs more.
func makeTables(tb testing.TB, pool *pgxpool.Pool, more string) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), testdb.PostgresTables(tb, more), pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatal(err)
	}
}

func newConsumer(tb testing.TB, store *pgxstore.Store, cfg consumer.Config[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	tb.Helper()
	cfg.Store, cfg.Key = store, consumer.MessageID
	c, err := consumer.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}
