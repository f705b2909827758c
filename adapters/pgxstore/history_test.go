package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
)

// twoServers is a pool of two connections, each to another server with the same schema, as after a failover behind one
// address.
type twoServers struct{ pool *pgxpool.Pool }

func newTwoServers(t *testing.T) twoServers {
	t.Helper()
	schema := fmt.Sprintf("history_%d", time.Now().UnixNano())
	var dsns [2]string
	for i, server := range []string{testdb.Postgres(t), testdb.Postgres18(t)} {
		admin := testPool(t, server, 1)
		if _, err := admin.Exec(t.Context(), `CREATE SCHEMA `+schema); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = admin.Exec(context.WithoutCancel(t.Context()), `DROP SCHEMA `+schema+` CASCADE`)
		})
		dsns[i] = server + "&search_path=" + schema
		makeTables(t, testPool(t, dsns[i], 1), "")
	}
	var other *pgx.ConnConfig
	cfg, err := pgxpool.ParseConfig(dsns[0])
	if err == nil {
		other, err = pgx.ParseConfig(dsns[1])
	}
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	cfg.MaxConns = 2
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if n.Add(1) == 2 {
			*c = *other
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return twoServers{pool}
}

// on runs f while the pool has only a connection to the first server (0) or to the second one.
func (s twoServers) on(t *testing.T, server int, f func()) {
	t.Helper()
	var held [2]*pgxpool.Conn
	for range held {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		if conn.Conn().Config().Port != s.pool.Config().ConnConfig.Port {
			i = 1
		}
		held[i] = conn
	}
	held[server].Release()
	defer held[1-server].Release()
	f()
}

// A claim on another server is noted, by whatever path it is made, so that no position moves that rests on it.
func TestEachClaimNotesItsServer(t *testing.T) {
	redelivered := func(recs []dedup.Record) []dedup.Record {
		for i := range recs {
			recs[i].Redelivered = true
		}
		return recs
	}
	pair := func(a, b string) []dedup.Record { return append(ordinaryRecord(a), ordinaryRecord(b)...) }
	twoConsumers := func() []dedup.Record {
		recs := pair("seen", "seen 2")
		recs[1].Key.Consumer = "shipping"
		return recs
	}
	for _, test := range []struct {
		name string
		late bool
		wait time.Duration
		recs []dedup.Record
		own  bool // Claim in a transaction of the caller's
	}{
		{name: "a first message", recs: ordinaryRecord("new")},
		{name: "a first message with a short wait", wait: time.Second, recs: ordinaryRecord("new")},
		{name: "a batch", recs: pair("new", "new 2")},
		{name: "a duplicate", recs: ordinaryRecord("seen")},
		{name: "a batch of duplicates", recs: pair("seen", "seen 2")},
		{name: "duplicates of two consumers", recs: twoConsumers()},
		{name: "a redelivered duplicate", recs: redelivered(ordinaryRecord("seen"))},
		{name: "redelivered duplicates", recs: redelivered(pair("seen", "seen 2"))},
		{name: "a redelivered message that is new", recs: redelivered(ordinaryRecord("new"))},
		{name: "ClaimLate", late: true, recs: ordinaryRecord("new")},
		{name: "a message without a key"},
		{name: "Claim of a new message", own: true, recs: ordinaryRecord("new")},
		{name: "Claim of duplicates", own: true, recs: twoConsumers()},
	} {
		t.Run(test.name, func(t *testing.T) {
			servers := newTwoServers(t)
			s := newStore(t, pgxstore.Config{Pool: servers.pool})
			ctx := t.Context()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			servers.on(t, 1, func() { // ClaimLate needs a connection that it knows
				must(s.InTx(ctx, pair("seen", "seen 2"), doNothing))
				must(s.InTx(ctx, twoConsumers(), doNothing))
				must(s.InTx(ctx, ordinaryRecord("other"), doNothing))
			})
			id := driver.PositionID{Consumer: "billing", Source: "kafka"}
			var history int64
			servers.on(t, 0, func() {
				var err error
				history, err = s.ChangePosition(ctx, id, func(*driver.Position) (*driver.Position, error) {
					return &driver.Position{Epoch: 1}, nil
				})
				must(err)
			})
			servers.on(t, 1, func() {
				ctx := ctx
				if test.late {
					ctx = driver.WithLateClaim(ctx, func() { t.Error("the guess was wrong") })
				}
				if test.wait > 0 {
					ctx = driver.WithClaimWait(ctx, test.wait)
				}
				if test.own {
					must(pgx.BeginFunc(ctx, servers.pool, func(tx pgx.Tx) error {
						_, err := s.Claim(ctx, tx, test.recs)
						return err
					}))
					return
				}
				must(s.InTx(ctx, test.recs, func(pgx.Tx, []dedup.Claim) error {
					if now := s.History(); now == history && !test.late {
						t.Errorf("the handler runs, and History is still %d", now)
					}
					return nil
				}))
			})
			servers.on(t, 0, func() {
				moves := []driver.PositionMove{{PositionID: id, Epoch: 1, Next: 1}}
				if _, err := s.MovePositions(ctx, history, moves); !errors.Is(err, driver.ErrHistoryChanged) {
					t.Errorf("MovePositions after a claim on another server: %v, want ErrHistoryChanged", err)
				}
				rows, err := s.ListPositions(ctx, id.Consumer)
				if err != nil || len(rows) != 1 || rows[0].Next != 0 {
					t.Errorf("positions %+v, %v: want the position as it was", rows, err)
				}
			})
		})
	}
}

// The server itself refuses a move of another history, also if no claim has noted the change.
func TestAMoveIsMadeByTheServerOfItsHistoryOnly(t *testing.T) {
	servers := newTwoServers(t)
	s := newStore(t, pgxstore.Config{Pool: servers.pool})
	id := driver.PositionID{Consumer: "billing", Source: "kafka"}
	var histories [2]int64
	for i := range histories {
		servers.on(t, i, func() {
			var err error
			histories[i], err = s.ChangePosition(t.Context(), id, func(*driver.Position) (*driver.Position, error) {
				return &driver.Position{Epoch: 1}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	moves := []driver.PositionMove{{PositionID: id, Epoch: 1, Next: 1}}
	servers.on(t, 0, func() {
		if _, err := s.MovePositions(t.Context(), histories[1], moves); !errors.Is(err, driver.ErrHistoryChanged) {
			t.Errorf("MovePositions on another server: %v, want ErrHistoryChanged", err)
		}
		if now := s.History(); now <= histories[1] {
			t.Errorf("History is %d, want more than %d", now, histories[1])
		}
	})
	for i := range histories {
		servers.on(t, i, func() {
			if rows, err := s.ListPositions(t.Context(), id.Consumer); err != nil || len(rows) != 1 || rows[0].Next != 0 {
				t.Errorf("server %d: positions %+v, %v: want the position as it was", i, rows, err)
			}
		})
	}
}
