package awssqstest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
)

// Config configures a Server. The zero value works.
type Config struct {
	// Fault decides what becomes of a call. It may be called by several goroutines at once. Defaults to none.
	Fault func(Call) Fault

	// Shuffle makes standard queues deliver in random order. By default they keep the order of sending.
	Shuffle bool

	// Absent lists attributes that GetQueueAttributes leaves out, like some other servers for SQS's protocol. Defaults
	// to none.
	Absent []types.QueueAttributeName
}

// Server is an in-memory SQS. Its methods with a context are like those of *sqs.Client. It is safe for concurrent use.
type Server struct {
	cfg Config

	mu     sync.Mutex
	queues map[string]*queue
	fault  func(Call) Fault
	denied []string
	calls  map[string]int
	down   bool
	cut    chan struct{} // closed by Down
	paused chan struct{} // closed by resume; nil: not paused
	serial int64         // last number of a queue or message
}

var _ awssqs.API = (*Server)(nil)

// NewServer returns a Server without queues.
func NewServer(cfg Config) *Server {
	return &Server{
		cfg: cfg, fault: cfg.Fault, queues: make(map[string]*queue), calls: make(map[string]int),
		cut: make(chan struct{}),
	}
}

// SetFault replaces Config.Fault. nil means no faults.
func (s *Server) SetFault(fault func(Call) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Down makes the Server unreachable: running calls lose their connection, and new calls cannot connect. Queues and
// messages are kept, and visibility timeouts continue.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		s.down = true
		close(s.cut)
	}
}

// Up ends Down.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		s.down = false
		s.cut = make(chan struct{})
	}
}

// Pause leaves calls that begin from now on without answer and effect, until resume is called or their context ends.
func (s *Server) Pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.paused != nil {
			close(s.paused)
			s.paused = nil
		}
	}
}

// Deny makes the Server answer these operations, such as "SendMessageBatch", with AccessDenied. Each call replaces the
// previous list; without arguments everything is allowed again.
func (s *Server) Deny(operations ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = slices.Clone(operations)
}

// Calls returns how often an operation was called, including failed calls.
func (s *Server) Calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

// Stored is a message in a queue.
type Stored struct {
	MessageID       string
	Body            string
	Attributes      map[string]types.MessageAttributeValue
	GroupID         string
	DeduplicationID string
	Sent            time.Time
	Received        int       // number of receives
	VisibleAt       time.Time // if in the past, the message can be received
	Delayed         bool      // it was never visible
}

// Stored lists the messages of a queue, in flight or not, in the order of sending. It does not receive them.
func (s *Server) Stored(queueName string) []Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queueName]
	if q == nil {
		return nil
	}
	q.expire(time.Now())
	var all []Stored
	for m := range q.all() {
		all = append(all, Stored{
			MessageID: m.id, Body: m.body, Attributes: cloneAttributes(m.attributes), GroupID: m.group,
			DeduplicationID: m.dedup,
			Sent:            m.sent, Received: m.received, VisibleAt: m.visible, Delayed: m.received == 0 &&
				m.visible.After(time.Now()),
		})
	}
	return all
}

const (
	urlPrefix = "https://sqs.test/123456789012/"
	arnPrefix = "arn:aws:sqs:test:123456789012:"
)

// uuid returns a random UUID.
func uuid() string {
	a, b := rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff)
}
