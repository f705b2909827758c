package rabbitmq_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// proxy is between clients and a real RabbitMQ. It can stop forwarding, refuse connections, and cut them.
type proxy struct {
	target string
	url    string

	mu     sync.Mutex
	moved  *sync.Cond // on each change
	silent bool
	away   bool
	conns  map[net.Conn]bool
	dials  int
	ended  bool
}

// newProxy listens until the test ends.
func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: u.Host, conns: map[net.Conn]bool{}}
	p.moved = sync.NewCond(&p.mu)
	u.Host = l.Addr().String()
	p.url = u.String()
	var owns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.cut()
		p.moved.Broadcast()
		owns.Wait()
	})
	owns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			owns.Go(func() { p.serve(client, &owns) })
		}
	})
	return p
}

func (p *proxy) serve(client net.Conn, owns *sync.WaitGroup) {
	defer client.Close()
	p.mu.Lock()
	p.dials++
	away := p.away || p.ended
	p.mu.Unlock()
	if away {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	if p.away || p.ended {
		client.Close()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
	}()
	done := make(chan struct{})
	owns.Go(func() {
		defer close(done)
		p.pass(server, client)
		client.Close()
		server.Close()
	})
	p.pass(client, server)
	client.Close()
	server.Close()
	<-done
}

// pass forwards data, and holds it back while the proxy is silent.
func (p *proxy) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.silent && !p.ended && p.conns[from] {
			p.moved.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hush holds all data back until speak is called.
func (p *proxy) hush() (speak func()) {
	p.set(func() { p.silent = true })
	return func() { p.set(func() { p.silent = false }) }
}

// close takes the server away until open is called.
func (p *proxy) close() (open func()) {
	p.set(func() { p.away = true })
	p.cut()
	return func() { p.set(func() { p.away = false }) }
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) set(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	p.moved.Broadcast()
}

func (p *proxy) dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// dialer connects to a real server.
func dialer(url string) rabbitmq.Dialer { return rabbitmq.Dial(url, amqp.Config{}) }
