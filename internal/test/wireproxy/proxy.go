package wireproxy

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Config configures a Proxy.
type Config struct {
	// Decide says what happens to a frame. It is called for one frame after the other. Defaults to forwarding all.
	Decide func(Frame) Action

	// Recycle saves the server the work of new sessions: when a client's connection ends, the session is rolled back
	// and reset, and the next client with the same settings gets it. Every Recycle-th session ends for real. Defaults
	// to 0: each does.
	Recycle int
}

// Proxy forwards between clients and a server.
type Proxy struct {
	cfg              Config
	network, address string
	newProtocol      func() protocol
	listener         net.Listener

	wg     sync.WaitGroup
	closed chan struct{}

	deciding sync.Mutex // is held while Decide runs
	n        int        // frames since Arm

	mu       sync.Mutex
	sessions map[*session]struct{}
	clients  int
	ended    int                    // sessions
	spare    map[string][]*upstream // recycled sessions by their clients' settings
	keys     map[string]*session    // by the key of a CancelRequest
}

// start starts a proxy, which ends with t.
func start(t testing.TB, cfg Config, network, address string, newProtocol func() protocol) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	p := &Proxy{
		cfg: cfg, network: network, address: address, newProtocol: newProtocol, listener: listener,
		closed: make(chan struct{}), sessions: map[*session]struct{}{}, spare: map[string][]*upstream{},
		keys: map[string]*session{},
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

// Arm makes the next frame number 1.
func (p *Proxy) Arm() {
	p.deciding.Lock()
	defer p.deciding.Unlock()
	p.n = 0
}

// HangUp ends all connections of clients.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.hangUp()
	}
}

// decide numbers a frame, and asks Decide.
func (p *Proxy) decide(f Frame) Action {
	p.deciding.Lock()
	defer p.deciding.Unlock()
	p.n++
	if f.N = p.n; p.cfg.Decide == nil {
		return Action{}
	}
	a := p.cfg.Decide(f)
	if !f.Allows(a.Kind) {
		panic(fmt.Sprintf("wireproxy: %v is not possible at %v", a.Kind, f))
	}
	return a
}

func (p *Proxy) close() {
	close(p.closed)
	p.listener.Close()
	p.mu.Lock()
	for s := range p.sessions {
		s.cut()
	}
	for _, all := range p.spare {
		for _, u := range all {
			u.conn.Close()
		}
	}
	p.spare = nil
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		s := &session{
			Proxy: p, protocol: p.newProtocol(), client: client,
			in: bufio.NewReader(client), out: bufio.NewWriter(client), gone: make(chan struct{}),
		}
		s.changed = sync.NewCond(&s.mu)
		if !p.enter(s) {
			client.Close()
			return
		}
		p.wg.Go(s.serve)
	}
}

// enter reports false when the proxy ends.
func (p *Proxy) enter(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	p.clients++
	s.number = p.clients
	p.sessions[s] = struct{}{}
	return true
}

func (p *Proxy) leave(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

// upstream is a session of the server.
type upstream struct {
	conn     net.Conn
	in       *bufio.Reader
	out      *bufio.Writer
	settings string   // of the client: only a client with the same ones may get the session
	greeting [][]byte // what the server has said before the first statement
	key      string   // PostgreSQL's BackendKeyData
}

// dial returns a new session.
func (p *Proxy) dial() (*upstream, error) {
	conn, err := net.DialTimeout(p.network, p.address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &upstream{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}, nil
}

// recycled returns a used session for a client with these settings; nil: there is none.
func (p *Proxy) recycled(settings string) *upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.spare[settings]
	if len(all) == 0 {
		return nil
	}
	u := all[len(all)-1]
	p.spare[settings] = all[:len(all)-1]
	return u
}

// forget makes CancelRequests for s come too late.
func (p *Proxy) forget(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, of := range p.keys {
		if of == s {
			delete(p.keys, key)
		}
	}
}

// mayRecycle decides whether a session that ends is used again.
func (p *Proxy) mayRecycle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	return p.cfg.Recycle > 0 && p.ended%p.cfg.Recycle != 0
}

// recycle keeps a session for the next client.
func (p *Proxy) recycle(u *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare == nil {
		u.conn.Close()
		return
	}
	p.spare[u.settings] = append(p.spare[u.settings], u)
}
