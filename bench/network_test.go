package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// No answer comes earlier than the delay, and nothing is changed.
func TestNetworkDelaysAnswers(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	n, err := newNetwork(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	const delay = 20 * time.Millisecond
	n.delay.Store(int64(delay))
	conn, err := net.Dial("tcp", n.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"BEGIN", "COMMIT, and BEGIN of the next"} {
		began := time.Now()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
		if took := time.Since(began); took < delay {
			t.Errorf("the answer came after %v", took)
		}
	}
}
