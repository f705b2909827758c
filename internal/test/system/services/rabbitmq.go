//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/test/rabbitserver"
)

// rabbitmq is a RabbitMQ node without plugins.
type rabbitmq struct{ port, dist, epmd int }

func (r rabbitmq) About() about {
	return about{
		Name: "rabbitmq", Title: "RabbitMQ", Env: "TXONCE_RABBITMQ",
		// any epmd will do
		Address: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", r.port), Ports: []string{fmt.Sprint(r.dist)},
	}
}

// Healthy declares a classic and a quorum queue, because the port opens a little before the broker can do that.
func (r rabbitmq) Healthy(ctx context.Context, address string) error {
	conn, err := amqp.DialConfig(address, amqp.Config{
		Heartbeat: 10 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// for the whole exchange: a starting node may accept a connection and not answer
			deadline, _ := ctx.Deadline()
			return conn, conn.SetDeadline(deadline)
		},
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare("", false, true, true, false, nil); err != nil {
		return err
	}
	_, err = ch.QueueDeclare("txonce-health-quorum", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	return errors.Join(err, ch.Close())
}

func (r rabbitmq) Needs() []program {
	if rabbitserver.Programs() != "" {
		return nil
	}
	return []program{{"rabbitmq-server", "rabbitmq-server"}}
}

func (r rabbitmq) Prepare(_ context.Context, dir string) (process, error) {
	programs := rabbitserver.Programs()
	if programs == "" {
		return process{}, errors.New("there are no programs of RabbitMQ where its packages put them")
	}
	data, outside, err := dataFolder(dir, "rabbitmq")
	if err != nil {
		return process{Outside: outside}, err
	}
	args, err := rabbitserver.Server{Programs: programs, Dir: data, Port: r.port, Dist: r.dist, Epmd: r.epmd}.Prepare()
	return process{Args: args, Stop: syscall.SIGTERM, Outside: outside}, err
}
