package wireproxy

import (
	"bufio"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup/deduptest"
)

// Postgres returns a DSN that leads to the server of dsn through a proxy whose first COMMIT suffers f. The proxy ends
// with t, which fails if no COMMIT came by.
func Postgres(t testing.TB, dsn string, f deduptest.Fault) string {
	t.Helper()
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	p := &proxy{fault: f, listener: listener, closed: make(chan struct{})}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.close()
		if !p.struck.Load() {
			t.Errorf("wireproxy: no COMMIT came by: the fault (%v) was never injected", f)
		}
	})
	return through(dsn, listener.Addr().(*net.TCPAddr))
}

// through replaces the address of a DSN of either form, URL or keywords.
func through(dsn string, addr *net.TCPAddr) string {
	if u, err := url.Parse(dsn); err == nil && strings.Contains(dsn, "://") {
		u.Host = addr.String()
		return u.String()
	}
	host, port, _ := net.SplitHostPort(addr.String())
	return dsn + " host=" + host + " port=" + port
}

type proxy struct {
	fault            deduptest.Fault
	network, address string
	listener         net.Listener
	struck           atomic.Bool

	wg     sync.WaitGroup
	closed chan struct{}
}

func (p *proxy) close() {
	close(p.closed)
	p.listener.Close()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.address)
		if err != nil {
			client.Close()
			continue
		}
		s := &session{proxy: p, client: client, server: server, done: make(chan struct{})}
		p.wg.Go(s.requests)
		p.wg.Go(s.answers)
		p.wg.Go(func() { // blocked reads end with the proxy
			select {
			case <-p.closed:
				s.cut()
			case <-s.done:
			}
		})
	}
}

// session is one connection of a client, and the one to the server that serves it.
type session struct {
	*proxy
	client, server net.Conn
	muted          atomic.Bool // answers are dropped, and the session ends with the answer to COMMIT

	once sync.Once
	done chan struct{}
}

func (s *session) cut() {
	s.once.Do(func() {
		s.client.Close()
		s.server.Close()
		close(s.done)
	})
}

// requests passes on what the client sends.
func (s *session) requests() {
	defer s.requestsEnd()
	in := bufio.NewReader(s.client)
	if !s.startup(in) {
		return
	}
	var known commits
	for {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		if known.isCommit(m) && s.struck.CompareAndSwap(false, true) {
			switch s.fault {
			case deduptest.CommitLost:
				return
			case deduptest.AnswerLost:
				s.muted.Store(true)
			case deduptest.CommitLate:
				s.late(m)
				return
			}
		}
		if _, err := s.server.Write(m.bytes()); err != nil {
			return
		}
	}
}

// requestsEnd lets the server finish a COMMIT whose answer nobody waits for.
func (s *session) requestsEnd() {
	if !s.muted.Load() {
		s.cut()
	}
}

// startup passes the first message on. Requests for encryption, which come before it, are refused.
func (s *session) startup(in *bufio.Reader) bool {
	for {
		m, err := readUntyped(in)
		if err != nil {
			return false
		}
		switch m.code() {
		case sslRequest, gssRequest:
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		}
		_, err = s.server.Write(m.bytes())
		return err == nil && m.code() != cancelRequest
	}
}

// late is CommitLate: the client goes at once, its COMMIT follows later.
func (s *session) late(commit message) {
	s.muted.Store(true)
	s.client.Close()
	timer := time.NewTimer(deduptest.LateBy)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closed:
		s.cut()
		return
	}
	out := commit.bytes()
	if commit.kind == execute {
		out = append(out, syncMessage.bytes()...)
	}
	if _, err := s.server.Write(out); err != nil {
		s.cut()
	}
}

// answers passes on what the server sends.
func (s *session) answers() {
	defer s.cut()
	in := bufio.NewReader(s.server)
	committed := false
	for {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		if s.muted.Load() {
			committed = committed || m.endsCommit()
			if committed && m.kind == readyForQuery {
				return
			}
			continue
		}
		if _, err := s.client.Write(m.bytes()); err != nil && !s.muted.Load() {
			return
		}
	}
}
