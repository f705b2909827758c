package rabbitmqtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
)

// Config sets a Server up. The zero value of a field is what RabbitMQ 3.10 does.
type Config struct {
	MaxMessageBytes int           // larger messages close their channel; defaults to 128 MiB
	FrameBytes      int           // headers that do not fit into one frame close their connection; defaults to 128 KiB
	ConsumerTimeout time.Duration // the time to settle a delivery; defaults to 30 minutes
	DeliveryLimit   int           // of quorum queues that are declared without one; defaults to none (RabbitMQ 4: 20)
	// a client gives up a connection that is silent for three of these; defaults to 5 seconds
	Heartbeat time.Duration
}

// Server is a RabbitMQ in memory. It is safe for concurrent use.
type Server struct {
	cfg Config

	mu        sync.Mutex
	exchanges map[string]*exchange
	queues    map[string]*queue
	conns     map[*conn]bool
	names     int // given out
	stopped   bool
	paused    chan struct{} // closed when the pause is over; nil: there is none
	alarm     string        // why publishers are blocked; empty: they are not
	deny      func(Access) bool
	decide    func(Publish) Fate
	held      []func() // confirms that were withheld
}

// NewServer returns a Server that runs, with the exchanges that each RabbitMQ has and no queue.
func NewServer(cfg Config) *Server {
	defaults := Config{128 << 20, 128 << 10, 30 * time.Minute, 0, 5 * time.Second}
	if cfg.MaxMessageBytes == 0 {
		cfg.MaxMessageBytes = defaults.MaxMessageBytes
	}
	if cfg.FrameBytes == 0 {
		cfg.FrameBytes = defaults.FrameBytes
	}
	if cfg.ConsumerTimeout == 0 {
		cfg.ConsumerTimeout = defaults.ConsumerTimeout
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = defaults.Heartbeat
	}
	s := &Server{cfg: cfg, exchanges: map[string]*exchange{}, queues: map[string]*queue{}, conns: map[*conn]bool{}}
	for name, kind := range map[string]string{
		"": amqp.ExchangeDirect, "amq.direct": amqp.ExchangeDirect, "amq.fanout": amqp.ExchangeFanout,
		"amq.topic": amqp.ExchangeTopic,
	} {
		s.exchanges[name] = &exchange{name: name, kind: kind, durable: true}
	}
	return s
}

// errRefused is the error of dialling a stopped server.
var errRefused = errors.New("dial tcp 127.0.0.1:5672: connect: connection refused")

// Dial connects. It is a rabbitmq.Dialer. A stopped server refuses, and a paused one does not answer until ctx ends.
func (s *Server) Dial(ctx context.Context) (rabbitmq.Connection, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return nil, errRefused
		}
		paused := s.paused
		if paused == nil {
			c := newConn(s)
			s.conns[c] = true
			s.mu.Unlock()
			go c.read()
			return c, nil
		}
		s.mu.Unlock()
		select {
		case <-paused:
		case <-ctx.Done():
			return nil, fmt.Errorf("read tcp 127.0.0.1:5672: i/o timeout: %w", ctx.Err())
		}
	}
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Cut breaks all connections, as a network does. Unsettled messages go back to their queues.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.drop(errReset)
	}
}

var errReset = &amqp.Error{Code: amqp.FrameError, Reason: "read tcp 127.0.0.1:5672: read: connection reset by peer"}

// Stop ends the server. Durable exchanges and queues stay, and in them persistent messages, and all messages of quorum
// queues; everything else is gone. It is refused to dial until Start.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.unpause()
	for c := range s.conns {
		c.drop(&amqp.Error{
			Code: amqp.ConnectionForced, Reason: "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", Server: true,
		})
	}
	for name, e := range s.exchanges {
		if !e.durable {
			delete(s.exchanges, name)
		}
	}
	for _, q := range s.queues {
		if !q.durable {
			s.removeQueue(q)
			continue
		}
		q.restart()
	}
	s.alarm, s.held = "", nil
}

// Start lets a stopped server run again.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
	for _, q := range s.queues {
		q.serve()
	}
}

// Pause keeps the server from reading, answering and delivering, with its connections open, until resume is called.
// Clients give their connections up after three heartbeats; what they had sent by then is read when the pause ends.
func (s *Server) Pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
		for c := range s.conns {
			c.silent = time.AfterFunc(3*s.cfg.Heartbeat, c.lost)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unpause()
	}
}

func (s *Server) unpause() {
	if s.paused == nil {
		return
	}
	close(s.paused)
	s.paused = nil
	for c := range s.conns {
		if c.silent != nil { // nil: the connection came during the pause
			c.silent.Stop()
		}
		c.thaw()
		c.awake()
	}
	for _, q := range s.queues {
		q.serve()
	}
}

// Block makes the server short of memory or disk: it reads nothing more from a connection after its next message, and
// tells the client why. Connections that only consume go on.
func (s *Server) Block(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = reason
}

// Unblock ends the shortage that Block began.
func (s *Server) Unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = ""
	for c := range s.conns {
		if c.blocked {
			c.blocked = false
			c.push(func() { c.notifyBlocked(amqp.Blocking{}) })
			c.thaw()
		}
	}
}

// Access is an operation of a client that needs permission.
type Access struct {
	Operation string // "configure", "write" or "read"
	Kind      string // "exchange" or "queue"
	Name      string
}

// Deny makes the server refuse an access with ACCESS_REFUSED (403) when refused returns true. nil: it refuses none.
func (s *Server) Deny(refused func(Access) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny = refused
}

func (s *Server) permit(operation, kind, name string) *amqp.Error {
	if s.deny == nil || !s.deny(Access{operation, kind, name}) {
		return nil
	}
	return refuse(amqp.AccessRefused, "ACCESS_REFUSED - access to %s '%s' in vhost '/' refused for user 'guest'",
		kind, name)
}

// refuse returns an error that closes a channel, or the connection if its code is a hard error.
func refuse(code int, format string, args ...any) *amqp.Error {
	soft := code < amqp.FrameError && code != amqp.ConnectionForced && code != amqp.InvalidPath
	return &amqp.Error{Code: code, Reason: fmt.Sprintf(format, args...), Server: true, Recover: soft}
}
