package kafka_test

import (
	"net"
	"sync"

	"github.com/IBM/sarama"
)

// freezer freezes the connections of a client, as SIGSTOP or a broken network does: nothing arrives, nothing is
// refused.
type freezer struct {
	mu     sync.Mutex
	thawed chan struct{} // closed while not frozen
}

func newFreezer(cfg *sarama.Config) *freezer {
	f := &freezer{thawed: make(chan struct{})}
	close(f.thawed)
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, f
	return f
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawed = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.thawed)
}

func (f *freezer) gate() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed
}

func (f *freezer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return &frozen{Conn: c, freezer: f, closed: make(chan struct{})}, nil
}

type frozen struct {
	net.Conn
	freezer *freezer
	once    sync.Once
	closed  chan struct{}
}

func (c *frozen) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *frozen) wait() error {
	select {
	case <-c.freezer.gate():
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *frozen) Write(p []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *frozen) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if waited := c.wait(); waited != nil {
		return 0, waited
	}
	return n, err
}
