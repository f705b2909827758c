package watermilltx_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/outbox"
)

// gate is the way to a server, which can be closed.
type gate struct {
	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, conn)
	}
	return conn, err
}

func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = false
	}
}

// Calls that hang are bounded, however often they are repeated, and Drain waits for them.
func TestStuckCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := &inMemory{topics: map[string][]*message.Message{"t": {}}}
		p := newPublisher(t, watermilltx.PublisherConfig{Publisher: broker, Confirms: true, Concurrency: 3})
		resume := broker.hush()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			for _, err := range p.Publish(ctx, []outbox.Message{
				{ID: "1", Topic: "t"},
				{ID: "2", Topic: "t"},
				{ID: "3", Topic: "t"},
				{ID: "4", Topic: "t"},
			}) {
				if unavailable := new(outbox.UnavailableError); !errors.As(err, &unavailable) {
					t.Errorf("error %v", err)
				}
			}
			cancel()
		}
		synctest.Wait()
		if broker.calls != 3 {
			t.Errorf("%d calls hang, want 3", broker.calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v while calls hang", err)
		}
		resume()
		synctest.Wait()
		if n := len(broker.topics["t"]); n != 3 {
			t.Errorf("%d messages arrived late", n)
		}
	})
}

func TestDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := &inMemory{topics: map[string][]*message.Message{"t": {}}}
		p := newPublisher(t, watermilltx.PublisherConfig{Publisher: broker, Confirms: true})
		resume := broker.hush()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.Publish(ctx, []outbox.Message{{ID: "1", Topic: "t"}})
		go func() {
			<-time.After(time.Minute)
			resume()
		}()
		if err := p.Drain(t.Context()); err != nil || len(broker.topics["t"]) != 1 {
			t.Errorf("Drain = %v with %d messages", err, len(broker.topics["t"]))
		}
	})
}

// sabotaged calls do before it publishes.
type sabotaged struct {
	inMemory
	do func(uuid string)
}

func (s *sabotaged) Publish(topic string, msgs ...*message.Message) error {
	s.do(msgs[0].UUID)
	return s.inMemory.Publish(topic, msgs...)
}

// A function of the user that panics or ends its goroutine for a message fails that message alone, and takes no room
// from later ones.
func TestPublisherWhoseFunctionsDoNotReturn(t *testing.T) {
	nothing := func(string) {}
	panics := func(id string) {
		if id == "bad" {
			panic("oh")
		}
	}
	ends := func(id string) {
		if id == "bad" {
			runtime.Goexit()
		}
	}
	for _, c := range []struct {
		name          string
		publish, uuid func(id string)
		says          string
	}{
		{"Publish panics", panics, nothing, "Publish panicked: oh"},
		{"Publish ends its goroutine", ends, nothing, "Publish ended its goroutine"},
		{"UUID panics", nothing, panics, "PublisherConfig.UUID panicked: oh"},
		{"UUID ends its goroutine", nothing, ends, "PublisherConfig.UUID ended its goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			broker := &sabotaged{inMemory: inMemory{topics: map[string][]*message.Message{"t": {}}}, do: c.publish}
			p := newPublisher(t, watermilltx.PublisherConfig{Publisher: broker, Confirms: true, Concurrency: 2, UUID: func(m outbox.Message) string {
				c.uuid(m.ID)
				return m.ID
			}})
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				errs := p.Publish(ctx, []outbox.Message{
					{ID: "1", Topic: "t"},
					{ID: "bad", Topic: "t"},
					{ID: "2", Topic: "t"},
				})
				if errs[0] != nil || errs[1] == nil || errs[2] != nil || !strings.Contains(errs[1].Error(), c.says) ||
					errors.As(errs[1], new(*outbox.UnavailableError)) {
					t.Errorf("errors %v", errs)
				}
			}
			if err := p.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
