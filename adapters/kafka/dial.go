package kafka

import (
	"context"
	"net"

	"github.com/IBM/sarama"
)

// dialInto makes all connections of cfg end with life. sarama knows no contexts: a request to a broker that does not
// answer, such as joining a group whose other members are slow, would delay a shutdown until it times out.
func dialInto(life context.Context, cfg *sarama.Config) {
	direct := net.Dialer{Timeout: cfg.Net.DialTimeout, KeepAlive: cfg.Net.KeepAlive, LocalAddr: cfg.Net.LocalAddr}
	dial := func(network, addr string) (net.Conn, error) { return direct.DialContext(life, network, addr) }
	if cfg.Net.Proxy.Enable {
		dial = cfg.Net.Proxy.Dialer.Dial
	}
	cfg.Net.Proxy.Enable = true
	cfg.Net.Proxy.Dialer = dialer(func(network, addr string) (net.Conn, error) {
		if life.Err() != nil {
			return nil, life.Err()
		}
		c, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{c, context.AfterFunc(life, func() { _ = c.Close() })}, nil
	})
}

type dialer func(network, addr string) (net.Conn, error)

func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

type conn struct {
	net.Conn
	forget func() bool
}

func (c *conn) Close() error {
	c.forget()
	return c.Conn.Close()
}
