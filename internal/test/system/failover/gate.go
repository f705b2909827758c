//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// gate is an address that connects to a server, to another one later, or to none.
type gate struct {
	Port int

	listener net.Listener
	mu       sync.Mutex
	port     int // 0: closed
	open     map[net.Conn]bool
}

func newGate() (*gate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{Port: l.Addr().(*net.TCPAddr).Port, listener: l, open: map[net.Conn]bool{}}
	go g.accept()
	return g, nil
}

// Point lets new connections go to port.
func (g *gate) Point(port int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.port = port
}

// Cut closes all connections, and refuses new ones until Point.
func (g *gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.port = 0
	for c := range g.open {
		_ = c.Close()
	}
}

func (g *gate) Close() {
	g.Cut()
	_ = g.listener.Close()
}

func (g *gate) accept() {
	for {
		from, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.join(from)
	}
}

func (g *gate) join(from net.Conn) {
	defer from.Close()
	g.mu.Lock()
	port := g.port
	g.mu.Unlock()
	if port == 0 {
		return
	}
	to, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return
	}
	defer to.Close()
	g.mu.Lock()
	same := g.port == port
	if same {
		g.open[from], g.open[to] = true, true
	}
	g.mu.Unlock()
	if !same {
		return
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, from)
		delete(g.open, to)
	}()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
