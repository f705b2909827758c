package rabbitmq_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
)

// midway calls a function in the middle of a connection's handshake: when the client sends its user name, in its second
// write.
type midway struct {
	net.Conn
	writes atomic.Int32
	do     func(net.Conn) (swallow bool)
}

func (c *midway) Write(b []byte) (int, error) {
	if c.writes.Add(1) == 2 && c.do(c.Conn) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestHandshakeCut: RabbitMQ refuses a password by hanging up, and a server that stops hangs up too. A Subscriber that
// was connected before tries again.
func TestHandshakeCut(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	var mu sync.Mutex
	var sockets []net.Conn
	cut := 0
	dial := rabbitmq.Dial(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		socket, err := net.Dial(network, addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		sockets = append(sockets, socket)
		if n := len(sockets); n != 2 && n != 3 {
			return socket, nil
		}
		return &midway{Conn: socket, do: func(c net.Conn) bool {
			mu.Lock()
			defer mu.Unlock()
			cut++
			return c.Close() != nil
		}}, nil
	}})
	consuming := make(chan struct{}, 8)
	s, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
		Dial: dial, Queue: testrabbitmq.Queue(t, url, nil), Processor: &answers{}, Logger: testlog.New(t).Logger(),
		Trace: &driver.SourceTrace{Subscribed: func(context.Context, driver.SourceEvent) { consuming <- struct{}{} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for n := range 2 {
		select {
		case <-consuming:
		case err := <-ended:
			t.Fatalf("Run = %v; want it to consume", err)
		}
		if n == 0 {
			mu.Lock()
			_ = sockets[0].Close()
			mu.Unlock()
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if cut != 2 {
		t.Errorf("%d handshakes were cut, want 2", cut)
	}
}

// TestHandshakeStalls: a server that does not answer has not refused the password.
func TestHandshakeStalls(t *testing.T) {
	t.Parallel()
	dial := rabbitmq.Dial(testrabbitmq.Server(t), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		socket, err := net.Dial(network, addr)
		return &midway{Conn: socket, do: func(net.Conn) bool { return true }}, err
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := dial(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, amqp.ErrCredentials) {
		t.Errorf("dial = %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestBlockedWriteEnds: a write to a server that has gone silent ends when its heartbeats are missing.
func TestBlockedWriteEnds(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	p := newProxy(t, url)
	conn, err := rabbitmq.Dial(p.url, amqp.Config{Heartbeat: time.Second})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	p.hush()
	written := make(chan error, 1)
	go func() {
		// more than sockets hold
		_, err := ch.PublishWithDeferredConfirm("", "nowhere", false, false,
			amqp.Publishing{Body: make([]byte, 64<<20)})
		written <- err
	}()
	select {
	case err := <-written:
		if err == nil {
			t.Error("the message was written to nobody")
		}
	case <-time.After(time.Minute):
		t.Error("the write has not ended after a minute; heartbeats come once a second")
		p.cut()
		<-written
	}
}

// TestServerHangsUp: a server that does nothing but hang up for half a minute refuses this user.
func TestServerHangsUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		during time.Duration
		with   *amqp.Error
		want   string
	}{
		"for a moment":     {during: 20 * time.Second, with: amqp.ErrCredentials},
		"the virtual host": {during: 20 * time.Second, with: amqp.ErrVhost},
		"for ever":         {during: time.Hour, with: amqp.ErrCredentials, want: "does not accept this user"},
		"in so many words": {
			during: time.Hour, with: &amqp.Error{Code: amqp.AccessRefused, Reason: "no", Server: true},
			want: "does not accept this user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				var since atomic.Int64
				p := &answers{}
				b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Dial: func(ctx context.Context) (rabbitmq.Connection, error) {
					if at := since.Load(); at > 0 && time.Since(time.Unix(0, at)) < test.during {
						return nil, test.with
					}
					return s.Dial(ctx)
				}})
				lapse(time.Second)
				since.Store(time.Now().UnixNano())
				s.Cut()
				lapse(25 * time.Second)
				ended := false
				select {
				case <-b.done:
					ended = true
				default:
				}
				if says := test.with.Server; ended != says {
					t.Errorf("after 25 s Run has ended: %v, want %v (%v)", ended, says, b.err)
				}
				lapse(time.Minute)
				if test.want != "" {
					if <-b.done; b.err == nil || !strings.Contains(b.err.Error(), test.want) {
						t.Errorf("Run = %v, want %q", b.err, test.want)
					}
					return
				}
				send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
				lapse(time.Second)
				if len(p.all()) != 1 {
					t.Errorf("%d deliveries afterwards, want 1", len(p.all()))
				}
			})
		})
	}
}
