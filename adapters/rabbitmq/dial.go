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

// Dial returns the Dialer of the server at url, amqp://user:password@host:port/vhost, or amqps:// for TLS. Unless cfg
// has other settings the connection is named after this program, and closed when the server is silent for 20 to 30
// seconds, because a dead connection keeps its messages until it is closed.
//
// cfg.Recovery must be nil: a connection that reconnects by itself would acknowledge on one channel the deliveries of
// another.
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
			return nil, errors.New("rabbitmq: amqp.Config.Recovery is set: leave it nil, because the Subscriber and the Publisher reconnect themselves")
		}
		return dial(ctx, url, cfg)
	}
}

func dial(ctx context.Context, url string, cfg amqp.Config) (Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	var opened net.Conn
	stop := func() bool { return true }
	connect := cfg.Dial
	if connect == nil {
		connect = func(network, addr string) (net.Conn,
			error,
		) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
	cfg.Properties = maps.Clone(cfg.Properties) // amqp091-go writes into it
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		var err error
		if opened, err = connect(network, addr); err != nil {
			return nil, err
		}
		// The handshake takes no context.
		stop = context.AfterFunc(ctx, func() { _ = opened.SetDeadline(time.Unix(1, 0)) })
		return socket{opened}, nil
	}
	conn, err := amqp.DialConfig(url, cfg)
	if !stop() { // ctx has ended, whatever error amqp091-go returns for it
		err = ctx.Err()
	}
	if err != nil {
		if opened != nil {
			_ = opened.Close()
		}
		return nil, fmt.Errorf("rabbitmq: connect: %w", err)
	}
	return connection{conn, opened}, nil
}

// socket closes itself when reading fails. amqp091-go closes it only after a blocked write has returned, and a write to
// a server that is gone may block for a quarter of an hour.
type socket struct{ net.Conn }

// Read implements net.Conn.
func (s socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		_ = s.Close()
	}
	return n, err
}

// connection is *amqp.Connection, except for the type of its channels. It owns the socket.
type connection struct {
	*amqp.Connection
	socket net.Conn
}

// CloseDeadline implements Connection. amqp091-go's own CloseDeadline waits for another heartbeat when a blocked server
// still sends its own, and does nothing when another call already waits for the server's answer.
func (c connection) CloseDeadline(deadline time.Time) error {
	cut := time.AfterFunc(time.Until(deadline), func() { _ = c.socket.Close() })
	err := c.Connection.CloseDeadline(deadline)
	if !errors.Is(err, amqp.ErrClosed) {
		cut.Stop()
	}
	return err
}

// Channel implements Connection.
func (c connection) Channel() (Channel, error) {
	ch, err := c.Connection.Channel()
	if err != nil {
		return Channel{}, err
	}
	return Channel{ch, ch, channel{ch}, ch}, nil
}

// channel is *amqp.Channel, except for the type of its confirms.
type channel struct{ *amqp.Channel }

// PublishWithDeferredConfirm implements ChannelPublisher.
func (c channel) PublishWithDeferredConfirm(exchange, key string, mandatory, immediate bool,
	msg amqp.Publishing,
) (Confirm, error) {
	confirm, err := c.Channel.PublishWithDeferredConfirm(exchange, key, mandatory, immediate, msg)
	if err != nil || confirm == nil { // nil: not in confirm mode
		return nil, err
	}
	return confirm, nil
}

// version is the version that the server reports, such as "3.10.8".
func (c connection) version() string {
	v, _ := c.Properties["version"].(string)
	return v
}
