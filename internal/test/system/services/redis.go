//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// redis is a Redis server without persistence, for the example that leaves Redis and for the benchmark that shows what
// a cache in front of claims costs.
type redis struct{ port int }

func (r redis) About() about {
	return about{Name: "redis", Title: "Redis", Env: "TXONCE_REDIS", Address: fmt.Sprintf("127.0.0.1:%d", r.port)}
}

func (r redis) Healthy(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "+PONG" {
		err = fmt.Errorf("it answers PING with %q", answer)
	}
	return err
}

func (r redis) Needs() []program {
	if _, err := exec.LookPath("redis-server"); err == nil {
		return nil
	}
	return []program{{"redis-server", "redis-server"}}
}

func (r redis) Prepare(_ context.Context, dir string) (process, error) {
	return process{Args: []string{
		"redis-server", "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir,
	}, Stop: syscall.SIGTERM}, nil
}
