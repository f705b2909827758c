package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// link is a proxy to a server. At some moment it stops forwarding without closing connections, like a frozen server or
// a broken network.
type link struct {
	at atomic.Pointer[string] // the first request with this text is lost, and everything after it
	// an earlier request of that connection must have this text; empty: any request; set it before at
	behind string
	frozen chan struct{}
	freeze func()
}

// freezable returns dsn through a link. After the link froze, new connections get no answer either.
func freezable(t *testing.T, dsn string) (through string, l *link) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, l = newLink(t, u.Host)
	return u.String(), l
}

func newLink(t *testing.T, server string) (address string, l *link) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &link{frozen: make(chan struct{})}
	l.freeze = sync.OnceFunc(func() { close(l.frozen) })
	var wg sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { close(done); listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { l.carry(client, server, done) })
		}
	})
	return listener.Addr().String(), l
}

func (l *link) carry(client net.Conn, server string, done <-chan struct{}) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer upstream.Close()
	var wg sync.WaitGroup
	carry := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		armed := false
		for {
			n, err := from.Read(buf)
			if at := l.at.Load(); at != nil && from == client {
				request := bytes.ToLower(buf[:n])
				armed = armed || bytes.Contains(request, []byte(l.behind))
				if armed && bytes.Contains(request, []byte(*at)) {
					l.freeze()
				}
			}
			select {
			case <-l.frozen:
				<-done
				return
			default:
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	wg.Go(func() { carry(upstream, client) })
	wg.Go(func() { carry(client, upstream) })
	wg.Wait()
	_, _ = io.Copy(io.Discard, client)
}

// If the database stops answering, the error is the database's and not the message's, whatever the statement was. The
// wait ends even if ctx has no deadline.
func TestPostgresStopsAnswering(t *testing.T) {
	t.Parallel() // this test mostly waits
	for _, test := range []struct {
		name, at string
		recs     int
	}{
		{"begin", "begin", 1},
		{"the claim of one", "on conflict", 1},
		{"the claim of a batch", "on conflict", 2},
		{"after the claim", "select set_config('lock_timeout', current_setting('txonce.lock_timeout')", 1},
		{"the mark of a transaction without a claim", "txonce.transaction", 0},
		{"the handler", "select 'handler'", 1},
		{"the proof", "select coalesce(pg_current_xact_id", 1},
		{"commit", "commit\x00", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := openPostgres(t, testdb.Postgres(t))
			dsn, l := freezable(t, d.dsn+"&default_query_exec_mode=exec") // this mode sends the text of each statement
			s := d.open(t, dsn, deduptest.Options{Wait: 100 * time.Millisecond})
			err := l.meet(t, s, test.at, test.recs)
			if !s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) || errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx = %v, want a Retryable error", err)
			}
		})
	}
}

// meet claims the given number of keys while the link freezes at text at, and returns the error of InTx.
func (l *link) meet(t *testing.T, s *node, at string, keys int) (err error) {
	t.Helper()
	warm(t, s)
	s.AnswerWithin(300 * time.Millisecond)
	l.at.Store(&at)
	for attempt := range 100 { // on a busy machine a timeout may end the attempt before that text is sent
		var recs []dedup.Record
		for key := range keys {
			recs = append(recs, record(fmt.Sprint(attempt, "/", key)))
		}
		began := time.Now()
		err = s.InTx(t.Context(), recs, func(tx *sql.Tx, _ []dedup.Claim) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := tx.ExecContext(ctx, `SELECT 'handler'`); err != nil {
				return fmt.Errorf("handler: %v", err) // %v: the error's chain is cut
			}
			return nil
		})
		if took := time.Since(began); took > time.Minute { // without a limit the wait would not end
			t.Errorf("it took %v", took)
		}
		select {
		case <-l.frozen:
			return err
		default:
		}
		if err == nil && l.behind == "" { // otherwise the attempt may have succeeded before that text was sent
			break
		}
	}
	t.Fatalf("the link never froze, so this case tested nothing: %v", err)
	return nil
}
