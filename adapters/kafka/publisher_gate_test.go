package kafka_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// gate is what all connections of a client go through, so that a test can take the brokers away from it alone.
type gate struct {
	mu     sync.Mutex
	conns  map[*gated]bool
	shut   bool          // connections are refused
	shutTo string        // to this address too
	silent chan struct{} // nil: what brokers say arrives; else when it is closed
	dials  int           // that were tried
	losses int           // answers to cut off
	gone   int           // that were
}

// through lets all connections of cfg go through a gate.
func through(cfg *sarama.Config) *gate {
	g := &gate{conns: make(map[*gated]bool)}
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, g
	return g
}

var errShut = errors.New("connection refused by the test")

func (g *gate) Dial(network, addr string) (net.Conn, error) {
	g.mu.Lock()
	g.dials++
	shut := g.shut || g.shutTo == addr
	g.mu.Unlock()
	if shut {
		return nil, errShut
	}
	raw, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return nil, err
	}
	c := &gated{Conn: raw, gate: g, closed: make(chan struct{})}
	g.mu.Lock()
	g.conns[c] = true
	g.mu.Unlock()
	return c, nil
}

// close cuts all connections, and refuses new ones until open.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for c := range g.conns {
		c.Conn.Close()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = false
	}
}

// closeTo cuts the connections to one broker, and refuses new ones.
func (g *gate) closeTo(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shutTo = addr
	for c := range g.conns {
		if c.RemoteAddr().String() == addr {
			c.Conn.Close()
		}
	}
}

// hush holds back the brokers' answers until speak; requests still reach the brokers.
func (g *gate) hush() (speak func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	silent := make(chan struct{})
	g.silent = silent
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.silent = nil
		close(silent)
	})
}

// dialed counts the tries to connect.
func (g *gate) dialed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dials
}

// connections is how many there are.
func (g *gate) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

type gated struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex
	deadline time.Time
}

func (c *gated) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.mu.Lock()
	silent := c.gate.silent
	lose := c.gate.losses > 0 && err == nil && n > 0
	if lose {
		c.gate.losses--
		c.gate.gone++
	}
	c.gate.mu.Unlock()
	if lose {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	if silent == nil || err != nil {
		return n, err
	}
	c.mu.Lock()
	timeout := time.NewTimer(time.Until(c.deadline))
	c.mu.Unlock()
	defer timeout.Stop()
	select {
	case <-silent:
		return n, nil
	case <-c.closed:
		return 0, net.ErrClosed
	case <-timeout.C:
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *gated) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.Conn.Close()
}

// lose cuts connections n times just as an answer arrives: the request was carried out.
func (g *gate) lose(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.losses = n
}

// lost counts the answers that were cut off.
func (g *gate) lost() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}
