package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// network forwards connections to a server, and delays each answer as a longer network would: what comes later is not
// held back by what came before.
type network struct {
	listener net.Listener
	server   string
	delay    atomic.Int64 // nanoseconds
}

func newNetwork(server string) (*network, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	n := &network{listener: listener, server: server}
	if err == nil {
		go n.accept()
	}
	return n, err
}

func (n *network) address() string { return n.listener.Addr().String() }

// close refuses new connections. Connections end when either side closes them.
func (n *network) close() error { return n.listener.Close() }

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		go n.forward(client)
	}
}

func (n *network) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		return // which closes the client's connection
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	answers := make(chan answer, 1024)
	go func() {
		defer close(answers)
		for {
			b := make([]byte, 16<<10)
			m, err := server.Read(b)
			if m > 0 {
				answers <- answer{b[:m], time.Now().Add(time.Duration(n.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for a := range answers {
		sleepUntil(a.due)
		if _, err := client.Write(a.bytes); err != nil {
			server.Close()
			for range answers { // until the reader has noticed
			}
			return
		}
	}
}

type answer struct {
	bytes []byte
	due   time.Time
}

// sleepUntil blocks its thread, because Go's own timers may be late by a millisecond.
func sleepUntil(due time.Time) {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		wait := syscall.NsecToTimespec(d.Nanoseconds())
		if err := syscall.Nanosleep(&wait, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// calibrate sets the delay so that a round trip takes longer by d than without the network between. It returns how long
// it takes without, and by how much longer with it.
func (n *network) calibrate(ctx context.Context, d time.Duration, direct,
	through func(context.Context) error,
) (took, added time.Duration, err error) {
	n.delay.Store(int64(d))
	for try := range 4 {
		if took, added, err = compareTrips(ctx, direct, through); err != nil {
			return 0, 0, err
		}
		if try < 3 {
			n.delay.Store(max(0, n.delay.Load()+int64(d-added)))
		}
	}
	return took, added, nil
}

// compareTrips returns the median of direct round trips, and that of how much longer the next one through the network
// took.
func compareTrips(ctx context.Context, direct, through func(context.Context) error) (took, added time.Duration, err error) {
	tooks, more := make([]time.Duration, 301), make([]time.Duration, 301)
	for i := range tooks {
		began := time.Now()
		if err := direct(ctx); err != nil {
			return 0, 0, err
		}
		tooks[i] = time.Since(began)
		if err := through(ctx); err != nil {
			return 0, 0, err
		}
		more[i] = time.Since(began) - 2*tooks[i]
	}
	slices.Sort(tooks)
	slices.Sort(more)
	return tooks[150], more[150], nil
}
