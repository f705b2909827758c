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

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/dsn"
)

// Postgres returns a DSN of the server of direct through a proxy that applies f to the first COMMIT. The proxy ends
// with t, which fails if no COMMIT was sent.
func Postgres(t testing.TB, direct string, f deduptest.Fault) string {
	t.Helper()
	network, address := postgresAddress(t, direct)
	return through(direct, start(t, f, network, address, func() wire { return &postgresWire{} }))
}

// PostgresEach is Postgres with a fault for each COMMIT that pick chooses. pick must be safe for concurrent use.
func PostgresEach(t testing.TB, direct string, pick func() (f deduptest.Fault, strike bool)) string {
	t.Helper()
	network, address := postgresAddress(t, direct)
	return through(direct, startEach(t, pick, network, address, func() wire { return &postgresWire{} }))
}

func postgresAddress(t testing.TB, direct string) (network, address string) {
	t.Helper()
	at, err := dsn.ParsePostgres(direct)
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	return at.Address()
}

// start starts a proxy that strikes once, and returns its address.
func start(t testing.TB, f deduptest.Fault, network, address string, newWire func() wire) *net.TCPAddr {
	t.Helper()
	var struck atomic.Bool
	addr := startEach(t, func() (deduptest.Fault, bool) { return f, struck.CompareAndSwap(false, true) }, network,
		address, newWire)
	t.Cleanup(func() {
		if !struck.Load() {
			t.Errorf("wireproxy: no COMMIT came by: the fault (%v) was never injected", f)
		}
	})
	return addr
}

// startEach starts a proxy and returns its address.
func startEach(t testing.TB, pick func() (deduptest.Fault, bool), network, address string,
	newWire func() wire,
) *net.TCPAddr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	p := &proxy{
		pick: pick, network: network, address: address, newWire: newWire, listener: listener,
		closed: make(chan struct{}),
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return listener.Addr().(*net.TCPAddr)
}

// through replaces the address in a DSN, which is a URL or a list of keywords.
func through(dsn string, addr *net.TCPAddr) string {
	if u, err := url.Parse(dsn); err == nil && strings.Contains(dsn, "://") {
		u.Host = addr.String()
		return u.String()
	}
	host, port, _ := net.SplitHostPort(addr.String())
	return dsn + " host=" + host + " port=" + port
}

// wire is the protocol of one session. Its methods for requests run concurrently with those for answers.
type wire interface {
	// startup forwards what precedes the first message that request can read.
	startup(s *session, in *bufio.Reader) bool
	// request reads one message from the client, and reports whether it makes the server commit.
	request(in *bufio.Reader) (m []byte, commit bool, err error)
	// late returns what to send for a COMMIT without further messages.
	late(commit []byte) []byte
	// answer reads one message from the server. last is true if muted is true, that is, COMMIT was sent, and the
	// message ends the answer to it.
	answer(in *bufio.Reader, muted *atomic.Bool) (m []byte, last bool, err error)
}

type proxy struct {
	pick             func() (f deduptest.Fault, strike bool) // called for each COMMIT
	network, address string
	newWire          func() wire
	listener         net.Listener

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
		s := &session{proxy: p, wire: p.newWire(), client: client, server: server, done: make(chan struct{})}
		p.wg.Go(s.requests)
		p.wg.Go(s.answers)
		p.wg.Go(func() { // makes blocked reads return when the proxy ends
			select {
			case <-p.closed:
				s.cut()
			case <-s.done:
			}
		})
	}
}

// session is a client's connection and the connection to the server for it.
type session struct {
	*proxy
	wire
	client, server net.Conn
	muted          atomic.Bool // drop answers, and end the session after the answer to COMMIT

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

// requests forwards the client's messages.
func (s *session) requests() {
	defer s.requestsEnd()
	in := bufio.NewReader(s.client)
	if !s.startup(s, in) {
		return
	}
	for {
		m, commit, err := s.request(in)
		if err != nil {
			return
		}
		if commit {
			switch f, strike := s.pick(); {
			case !strike:
			case f == deduptest.CommitLost:
				return
			case f == deduptest.AnswerLost:
				s.muted.Store(true)
			case f == deduptest.CommitLate:
				s.commitLate(m)
				return
			}
		}
		if _, err := s.server.Write(m); err != nil {
			return
		}
	}
}

// requestsEnd lets the server finish a COMMIT after the client is gone.
func (s *session) requestsEnd() {
	if !s.muted.Load() {
		s.cut()
	}
}

// commitLate applies CommitLate: the client's connection ends at once, and its COMMIT is sent later.
func (s *session) commitLate(commit []byte) {
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
	if _, err := s.server.Write(s.late(commit)); err != nil {
		s.cut()
	}
}

// answers forwards the server's messages.
func (s *session) answers() {
	defer s.cut()
	in := bufio.NewReader(s.server)
	for {
		m, last, err := s.answer(in, &s.muted)
		if err != nil || last {
			return
		}
		if s.muted.Load() {
			continue
		}
		if _, err := s.client.Write(m); err != nil && !s.muted.Load() {
			return
		}
	}
}
