package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dialWithin bounds a connection attempt whose context does not.
const dialWithin = 30 * time.Second

// Dial returns the Dialer of the server at url, amqp://user:password@host:port/vhost, or amqps:// for TLS. Unless cfg says otherwise
// the connection is named after this program, and given up when the server is silent for two or three times 10 seconds, for a
// connection that died without a word holds messages for as long as nobody notices.
//
// cfg.Recovery must be nil: a connection that comes back by itself would acknowledge on one channel what another one has
// delivered.
func Dial(url string, cfg amqp.Config) Dialer {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 10*time.Second)
	cfg.Properties = maps.Clone(cfg.Properties)
	if cfg.Properties == nil {
		cfg.Properties = amqp.NewConnectionProperties()
	}
	if _, named := cfg.Properties["connection_name"]; !named {
		cfg.Properties.SetClientConnectionName(filepath.Base(os.Args[0]))
	}
	return func(ctx context.Context) (Connection, error) {
		if cfg.Recovery != nil {
			return nil, errors.New("rabbitmq: amqp.Config.Recovery is set: leave it nil, what dials here connects again by itself")
		}
		return dial(ctx, url, cfg)
	}
}

func dial(ctx context.Context, url string, cfg amqp.Config) (Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	var socket net.Conn
	stop := func() bool { return true }
	connect := cfg.Dial
	if connect == nil {
		connect = func(network, addr string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) }
	}
	cfg.Properties = maps.Clone(cfg.Properties) // amqp091-go writes into it
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		var err error
		if socket, err = connect(network, addr); err != nil {
			return nil, err
		}
		// The handshake knows no context.
		stop = context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })
		return socket, nil
	}
	conn, err := amqp.DialConfig(url, cfg)
	if !stop() { // its deadline has passed: whatever amqp091-go makes of that
		err = ctx.Err()
	}
	if err != nil {
		if socket != nil {
			_ = socket.Close()
		}
		return nil, fmt.Errorf("rabbitmq: connect: %w", err)
	}
	return connection{conn}, nil
}

// connection is *amqp.Connection, but for the type of its channels.
type connection struct{ *amqp.Connection }

// Channel implements Connection.
func (c connection) Channel() (Channel, error) {
	ch, err := c.Connection.Channel()
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// version is what the server says of itself, as "3.10.8".
func (c connection) version() string {
	v, _ := c.Properties["version"].(string)
	return v
}
