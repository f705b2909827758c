package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// watched is a driver that calls before with each statement.
type watched struct {
	driver.Driver
	before *atomic.Pointer[func(query string)]
}

func (w watched) Open(dsn string) (driver.Conn, error) {
	conn, err := w.Driver.Open(dsn)
	return watchedConn{conn, w.before}, err
}

type watchedConn struct {
	driver.Conn
	before *atomic.Pointer[func(query string)]
}

func (c watchedConn) Prepare(query string) (driver.Stmt, error) {
	if before := c.before.Load(); before != nil {
		(*before)(query)
	}
	return c.Conn.Prepare(query)
}

func (c watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c watchedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// While a Lease reads one shard after the other, a message becomes due that was held back, and with it a later message
// of its key. The later one is not leased without the one before it.
func TestOutboxLeaseKeepsTheOrderOfWhatBecomesDueMeanwhile(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (driver.Driver, string, sqlstore.Dialect){
		"SQLite": func(t *testing.T) (driver.Driver, string, sqlstore.Dialect) {
			d := openSQLite(t)
			return d.db.Driver(), d.dsn, sqlstore.SQLite
		},
		// This driver has no ExecContext, so database/sql prepares every statement, and MySQL prepares no SAVEPOINT.
		"MariaDB": func(t *testing.T) (driver.Driver, string, sqlstore.Dialect) {
			d := openMySQL(t)
			return d.db.Driver(), d.dsn, sqlstore.MySQL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			under, dsn, kind := open(t)
			var before atomic.Pointer[func(string)]
			registered := fmt.Sprintf("watched %T %d", under, len(sql.Drivers()))
			sql.Register(registered, watched{under, &before})
			n := newNode(t, openDB(t, registered, dsn), sqlstore.Config{Dialect: kind})
			leaseKeepsTheOrder(t, n, &before)
		})
	}
}

func leaseKeepsTheOrder(t *testing.T, n *node, before *atomic.Pointer[func(string)]) {
	s := holdsAll(t, n)
	send := func(key string, from, to int) {
		var msgs []outbox.Message
		for i := from; i < to; i++ {
			msgs = append(msgs, outbox.Message{ID: fmt.Sprintf("%s-%d", key, i), Topic: "t", OrderingKey: key})
		}
		enqueue(t, n, msgs...)
	}
	var shards int
	if err := n.db.QueryRowContext(t.Context(), `SELECT count(*) FROM txonce_shards`).Scan(&shards); err != nil {
		t.Fatal(err)
	}
	in := func(shard int) (keys []string) { // two keys of the shard
		for i := 0; len(keys) < 2; i++ {
			if key := fmt.Sprint("key", i); outboxdriver.Shard(&outbox.Message{OrderingKey: key}, shards) == shard {
				keys = append(keys, key)
			}
		}
		return keys
	}
	ours, others := in(0), in(1)
	send(ours[0], 0, 1)
	settle(t, s, []outboxdriver.Outcome{{Leased: lease(t, s)[0], Verdict: outboxdriver.Deferred, Delay: time.Hour}})
	send(ours[1], 0, 505) // more messages than half a lease, and more than one query reads
	send(others[0], 0, 10)
	send(ours[0], 1, 2)
	var reads atomic.Int64
	release := func(query string) {
		if strings.Contains(query, "FORCE INDEX (PRIMARY)\nWHERE m.shard = ?") ||
			strings.HasPrefix(query, "SELECT l.shard, l.seq") {
			if reads.Add(1) == 2 {
				before.Store(nil)
				exec(t, n.db, `UPDATE outbox_held SET until = 1`)
			}
		}
	}
	before.Store(&release)
	msgs, err := s.tryLease(t.Context(), outboxdriver.Want{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, m := range msgs {
		if m.OrderingKey == ours[0] {
			order = append(order, m.ID)
		}
	}
	if reads.Load() < 2 {
		t.Fatalf("%d reads: nothing has happened between them", reads.Load())
	}
	if slices.Contains(order, ours[0]+"-1") && order[0] != ours[0]+"-0" {
		t.Errorf("leased %v of a key whose first message is pending", order)
	}
}

// holdsAll returns a session that holds all shards.
func holdsAll(t *testing.T, n *node) session {
	t.Helper()
	s := open(t, n, time.Hour)
	renew(t, s)
	return s
}
