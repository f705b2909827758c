package webhook_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// serve starts a real HTTP server, because only that has connections that are slow or break.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func dial(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func (s *shop) raw(body string, length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: shop.example\r\nShop-Signature: %s\r\nContent-Length: %d\r\n\r\n%s",
		s.sign([]byte(body)), length, body)
}

func TestSlowAndBrokenConnections(t *testing.T) {
	for _, c := range []struct {
		name   string
		send   func(s *shop) string
		then   func(conn net.Conn) error
		status int
	}{
		{
			"case 73: a body that never ends", func(s *shop) string { return s.raw(`[{"id":"1"}`, 1000) },
			func(net.Conn) error { return nil }, 408,
		},
		{
			"case 37: a body that ends early", func(s *shop) string { return s.raw(`[{"id":"1"}]`, 1000) },
			func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() }, 400,
		},
		{"case 73: a declared gzip bomb", func(s *shop) string {
			return "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n"
		}, func(net.Conn) error { return nil }, 415},
		{"case 36: Expect with a body that is too large", func(s *shop) string {
			return "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
		}, func(net.Conn) error { return nil }, 413},
		{"a chunked body that is too large", func(s *shop) string {
			return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
				strings.Repeat("400\r\n"+strings.Repeat(" ", 1024)+"\r\n", 1100)
		}, func(net.Conn) error { return nil }, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop()
			r := newReceiver(t, webhook.Config{
				Verifier: s, ReadTimeout: 200 * time.Millisecond,
				Processor: answers(func(context.Context, []*consumer.Message) []error { t.Error("the Processor was called"); return nil }),
			})
			conn, reader := dial(t, serve(t, r))
			go func() { _, _ = io.WriteString(conn, c.send(s)); _ = c.then(conn) }()
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			wantStatus(t, res, c.status)
		})
	}
}

// The limit for reading must not end the request while its handler runs: net/http goes on reading from the connection,
// and has to lift the limit.
func TestAHandlerMayRunLongerThanReadTimeout(t *testing.T) {
	s, store := newShop(), consumertest.NewStore()
	c := billing(t, consumer.Config[tx]{Store: store, Handle: slow(300 * time.Millisecond)})
	r := newReceiver(t, webhook.Config{Verifier: s, ReadTimeout: 100 * time.Millisecond, Processor: c})
	gone := false
	conn, reader := dial(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ServeHTTP(w, req)
		gone = req.Context().Err() != nil
	})))
	for range 2 { // and the next request on the connection is read as well
		if _, err := io.WriteString(conn, s.raw(`[{"id":"1"}]`, len(`[{"id":"1"}]`))); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, res, 200)
		if gone {
			t.Error("the request's context ended")
		}
		res.Body.Close()
	}
	wantCount(t, store, "1", 1)
}

// A client that closes its connection ends the request, and not the claimed work.
func TestAClientThatClosesItsConnection(t *testing.T) {
	s, store := newShop(), consumertest.NewStore()
	running, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
		close(running)
		<-goOn
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return count(ctx, tx, m)
	}})
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
	conn, _ := dial(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ServeHTTP(w, req)
		close(ended)
	})))
	if _, err := io.WriteString(conn, s.raw(`[{"id":"1"}]`, len(`[{"id":"1"}]`))); err != nil {
		t.Fatal(err)
	}
	<-running
	conn.Close()
	<-ended
	close(goOn)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	wantCount(t, store, "1", 1)
}
