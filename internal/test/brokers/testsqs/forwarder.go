package testsqs

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/txonce/txonce/internal/test/testdb"
)

// forwarder forwards an address to a server, and can cut the clients off while the server restarts.
type forwarder struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
}

// newForwarder listens on a free port at once, until the test ends.
func newForwarder(t testing.TB, to string) *forwarder {
	t.Helper()
	f := &forwarder{address: fmt.Sprintf("127.0.0.1:%d", testdb.FreePort(t)), to: to}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.cut)
	return f
}

// open accepts clients, also after cut.
func (f *forwarder) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return err
	}
	f.listener, f.conns = listener, map[net.Conn]struct{}{}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go f.forward(client)
		}
	}()
	return nil
}

func (f *forwarder) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", f.to)
	if err != nil {
		return // which closes the client's connection
	}
	defer server.Close()
	if !f.add(client, server) {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// add reports whether clients are still accepted.
func (f *forwarder) add(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		if f.listener != nil {
			f.conns[c] = struct{}{}
		}
	}
	return f.listener != nil
}

// cut closes all connections and refuses new ones.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		return
	}
	_ = f.listener.Close()
	for c := range f.conns {
		_ = c.Close()
	}
	f.listener, f.conns = nil, nil
}
