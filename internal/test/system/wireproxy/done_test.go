package wireproxy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// through returns a connection to a table of effects through a proxy that p decides for, and a direct one.
func (p *plan) through(t *testing.T) (conn, direct *pgx.Conn) {
	t.Helper()
	dsn := testdb.Schema(t, testdb.Postgres(t))
	direct = connect(t, dsn)
	exec(t, direct, `CREATE TABLE effects (n int)`)
	through, _ := wireproxy.ThroughPostgres(t, dsn, wireproxy.Config{Decide: p.decide, Recycle: 50})
	return connect(t, through), direct
}

// A stall during which the client gives up has not happened in full.
func TestStallOfAClientThatGoes(t *testing.T) {
	p := &plan{}
	conn, _ := p.through(t)
	p.next(wireproxy.Action{Kind: wireproxy.Stall, For: time.Hour}, inserted)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, insert); err == nil {
		t.Fatal("the answer came")
	}
	if !p.fired() || p.done.Load() != 0 {
		t.Errorf("fired %v, done %d times", p.fired(), p.done.Load())
	}
}

// An error of the server that comes for another reason is none that was injected. The client gets it nevertheless.
func TestAnswerInAFailedTransaction(t *testing.T) {
	for name, send := range modes {
		t.Run(name, func(t *testing.T) {
			p := &plan{}
			conn, _ := p.through(t)
			exec(t, conn, `BEGIN`)
			if _, err := conn.Exec(t.Context(), `SELECT 1/0`); err == nil {
				t.Fatal("no error")
			}
			p.next(wireproxy.Action{Kind: wireproxy.Answer, Code: "40001"}, inserts)
			if err := send(t.Context(), conn.PgConn(), insert); err == nil {
				t.Error("the client got no error")
			}
			if !p.fired() || p.done.Load() != 0 {
				t.Errorf("fired %v, done %d times", p.fired(), p.done.Load())
			}
		})
	}
}

// A late COMMIT waits for the lock, and is done when it is sent.
func TestLate(t *testing.T) {
	p := &plan{}
	conn, direct := p.through(t)
	exec(t, conn, `BEGIN`)
	exec(t, conn, insert)
	var late sync.Mutex
	late.Lock()
	p.next(wireproxy.Action{Kind: wireproxy.CutLate, For: time.Millisecond, Late: &late}, commits)
	if _, err := conn.Exec(t.Context(), `COMMIT`); err == nil {
		t.Fatal("COMMIT was answered")
	}
	<-time.After(50 * time.Millisecond)
	if n := rows(t, direct); n != 0 || p.done.Load() != 0 {
		t.Errorf("%d rows and %d actions while the lock is held", n, p.done.Load())
	}
	late.Unlock()
	p.eventually(t, 1)
	for began := time.Now(); rows(t, direct) != 1; <-time.After(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("COMMIT did not arrive")
		}
	}
}
