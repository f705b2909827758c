package awssqs_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// gate is a proxy between a client and a real server, and can be shut.
type gate struct {
	to string

	mu     sync.Mutex
	closed bool
	silent chan struct{} // closed when it speaks again
	conns  map[net.Conn]bool
}

// through returns a client that reaches client's server by way of a gate.
func through(t *testing.T, client *sqs.Client) (*sqs.Client, *gate) {
	t.Helper()
	options := client.Options()
	at, err := url.Parse(*options.BaseEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{to: at.Host, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.pass(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		g.close()
		g.speak()
		running.Wait()
	})
	options.BaseEndpoint = aws.String("http://" + listener.Addr().String())
	return sqs.New(options), g
}

func (g *gate) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer to.Close()
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.conns[from], g.conns[to] = true, true
	g.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { g.copy(to, from) })
	g.copy(from, to)
	both.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, from)
	delete(g.conns, to)
}

// copy passes bytes on, except while the gate is silent.
func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		g.mu.Lock()
		silent := g.silent
		g.mu.Unlock()
		if silent != nil {
			<-silent
		}
		if _, wrong := to.Write(buf[:n]); err != nil || wrong != nil {
			return
		}
	}
}

// hush keeps connections open and passes nothing on, until speak is called.
func (g *gate) hush() (speak func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = make(chan struct{})
	return g.speak
}

func (g *gate) speak() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent != nil {
		close(g.silent)
		g.silent = nil
	}
}

// close cuts all connections, and new ones at once, until open is called.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		conn.Close()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = false
	}
}
