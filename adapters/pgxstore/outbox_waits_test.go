package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// blocked is a session whose statements wait for a lock of a person, without a limit.
type blocked struct {
	*holding
	relay *pgxpool.Pool
	lock  pgx.Tx
}

// block locks what sql says, after d has leased what it must lease.
func block(t *testing.T, d *holding, sql string) *blocked {
	t.Helper()
	b := &blocked{holding: d, relay: pgxstore.RelayPool(d.Session)}
	onAll(t, b.relay, `SET lock_timeout = 0`) // the session's own limit is 5 s
	tx, err := d.pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.lock = tx
	t.Cleanup(b.release)
	return b
}

// onAll executes sql on all connections that a pool may have, and returns the numbers of their server processes.
func onAll(t *testing.T, pool *pgxpool.Pool, sql string) (pids []uint32) {
	t.Helper()
	var conns []*pgxpool.Conn
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err == nil {
			_, err = conn.Exec(t.Context(), sql)
		}
		if err != nil {
			t.Fatal(err)
		}
		conns, pids = append(conns, conn), append(pids, conn.Conn().PgConn().PID())
	}
	for _, conn := range conns {
		conn.Release()
	}
	return pids
}

func (b *blocked) release() { _ = b.lock.Rollback(context.Background()) }

// wait returns when n statements of the session wait.
func (b *blocked) wait(t *testing.T, n int) {
	t.Helper()
	for began := time.Now(); ; pause(10 * time.Millisecond) {
		var waiting int
		err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE $1::bigint::integer = ANY(pg_blocking_pids(pid))`,
			int64(b.lock.Conn().PgConn().PID())).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting >= n {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d statements wait, want %d", waiting, n)
		}
	}
}

// within fails the test when do does not return although the locks stay.
func (b *blocked) within(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(40 * time.Second):
		t.Errorf("%s has not returned, and its context has ended", what)
	}
}

// Settles that wait for a lock do not keep Renew waiting: that would cost the lease, and messages in flight would be
// published twice.
func TestOutboxRenewDoesNotWaitForSettle(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	d.enqueue(t, ids...)
	leased := d.lease(t)
	if len(leased) != len(ids) {
		t.Fatalf("leased %d messages, want %d", len(leased), len(ids))
	}
	b := block(t, d, `LOCK TABLE outbox_messages IN EXCLUSIVE MODE`)
	settled := make(chan error, len(leased))
	for _, l := range leased {
		go func() { settled <- d.Settle(t.Context(), []driver.Outcome{{Leased: l, Verdict: driver.Sent}}) }()
	}
	b.wait(t, 4)
	b.within(t, "Renew beside Settles that wait", func(ctx context.Context) error {
		_, err := d.Renew(ctx)
		return err
	})
	b.release()
	for range leased {
		if err := <-settled; err != nil {
			t.Error(err)
		}
	}
}

// Close returns when its context ends, also while another call waits for a lock. The relay's next session begins then.
func TestOutboxCloseDoesNotOutlastItsContext(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	b := block(t, d, `LOCK TABLE outbox_messages`)
	leased := make(chan error, 1)
	go func() {
		_, err := d.Lease(t.Context(), driver.Want{Limit: 10})
		leased <- err
	}()
	b.wait(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b.within(t, "Close", func(context.Context) error { return d.Close(ctx) })
	b.within(t, "the next session", func(ctx context.Context) error {
		s, err := d.store.Open(ctx, driver.SessionOptions{Name: "next", TTL: time.Hour})
		if err != nil {
			return err
		}
		hold, err := s.Renew(ctx)
		if err == nil && hold.Shards != hold.TotalShards {
			t.Errorf("it holds %d of %d shards: the others were not given back", hold.Shards, hold.TotalShards)
		}
		_ = s.Close(ctx)
		return err
	})
	b.release()
	<-leased
}

// Lease does not wait for a Maintain that waits, not even after so long that it would do the same chores itself.
func TestOutboxLeaseDoesNotWaitForMaintain(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	b := block(t, d, `LOCK TABLE outbox_delayed`)
	maintained := make(chan error, 1)
	go func() { maintained <- d.Session.(driver.Maintainer).Maintain(t.Context()) }()
	b.wait(t, 1)
	pgxstore.MaintainedAgo(d.Session, time.Minute)
	d.enqueue(t, "a")
	b.within(t, "Lease beside Maintain", func(ctx context.Context) error {
		leased, err := d.Lease(ctx, driver.Want{Limit: 10})
		if len(leased) != 1 {
			t.Errorf("leased %v, want one message", leasedIDs(leased))
		}
		return err
	})
	b.release()
	if err := <-maintained; err != nil {
		t.Error(err)
	}
}

// VACUUM and REINDEX CONCURRENTLY lock a table in this mode, the latter for as long as old transactions are open. A
// session takes shards all the same. If it could not, it would lose the shards that it has.
func TestOutboxTakesShardsDuringMaintenanceOfTheTable(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	tx, err := db.pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `LOCK TABLE txonce_shards, txonce_relays, outbox_messages IN SHARE UPDATE EXCLUSIVE MODE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	d := newHoldingOn(t, db)
	if hold, err := d.Renew(t.Context()); err != nil || hold.Shards != hold.TotalShards {
		t.Errorf("holds %d shards of %d, %v", hold.Shards, hold.TotalShards, err)
	}
}

// After a failover all connections are lost. The first failure shows that: if each connection had to fail, and took its
// time, the lease would be lost too.
func TestOutboxRenewMeetsOneLostConnection(t *testing.T) {
	d := newHolding(t, testdb.Postgres)
	for _, pid := range onAll(t, pgxstore.RelayPool(d.Session), `SELECT 1`) {
		d.exec(t, `SELECT pg_terminate_backend($1::bigint::integer, 60000)`, int64(pid))
	}
	failures := 0
	for ; failures < 10; failures++ {
		if _, err := d.Renew(t.Context()); err == nil {
			break
		}
	}
	if failures != 1 {
		t.Errorf("Renew failed %d times after all connections were lost, want once", failures)
	}
}
