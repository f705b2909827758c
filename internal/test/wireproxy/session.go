package wireproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// patience is how long a session waits for the server before it gives up knowing what became of a statement.
const patience = 20 * time.Second

// protocol is what the proxy knows of one session. The methods that read run concurrently with each other; the others
// run one after another.
type protocol interface {
	// startup forwards what precedes the first statement. It sets s.server, and reports false if no statement follows.
	startup(s *session) bool
	// request reads one message from the client. last means that the client says goodbye.
	request(in *bufio.Reader) (m packet, last bool, err error)
	// answer reads one message from the server.
	answer(in *bufio.Reader) ([]byte, error)

	// sent notes that a message goes to the server.
	sent(m packet)
	// received notes an answer, and says what it belongs to. hidden means that it is not for the client.
	received(raw []byte) (f Frame, hidden bool)
	// idle reports whether the server owes no answer.
	idle() bool
	// completion returns what makes the server answer all it was sent; nil: it does without.
	completion() []packet
	// failure returns what to send in place of m to make the server fail.
	failure(m packet, code string) []packet
	// reset returns what prepares a session for its next client; nil: it cannot be used again.
	reset() []packet
}

// packet is a message on its way to the server.
type packet struct {
	Frame
	raw    []byte
	hidden bool // the client gets no answer to it
}

// session is a client's connection and the session of the server for it.
type session struct {
	*Proxy
	protocol
	number int
	client net.Conn
	in     *bufio.Reader
	out    *bufio.Writer // to the client
	server *upstream

	mu        sync.Mutex
	changed   *sync.Cond // pending answers, broken, or time
	muted     bool       // the client gets nothing any more
	broken    bool       // the server's connection has ended
	spoiled   bool       // must not be used by another client
	releasing bool       // what resets it was sent; the answers to that are the last ones to read

	once sync.Once
	gone chan struct{} // closed when the client's connection ends here
}

// cut ends both connections.
func (s *session) cut() {
	s.hangUp()
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		server.conn.Close()
	}
}

// hangUp ends the client's connection. It reports false if that has ended already.
func (s *session) hangUp() (ended bool) {
	s.mu.Lock()
	s.muted = true
	s.mu.Unlock()
	s.once.Do(func() {
		s.client.Close()
		close(s.gone)
		ended = true
	})
	return ended
}

// cutFor ends the client's connection for an action, which that completes.
func (s *session) cutFor(a Action) {
	if s.hangUp() {
		a.done()
	}
}

func (s *session) mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = true
}

// attach sets the server's session. It reports false if the proxy ends.
func (s *session) attach(u *upstream) bool {
	s.mu.Lock()
	s.server = u
	s.mu.Unlock()
	select {
	case <-s.closed:
		u.conn.Close()
		return false
	default:
		return true
	}
}

// wait waits for d. It reports false if the proxy ends before.
func (s *session) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closed:
		return false
	}
}

func (s *session) serve() {
	defer s.leave(s)
	if !s.startup(s) {
		s.cut()
		return
	}
	answered := make(chan struct{})
	s.wg.Go(func() {
		defer close(answered)
		s.answers()
	})
	await := s.requests()
	s.finish(await)
	<-answered
}

// finish ends the session, or gives it to the next client.
func (s *session) finish(await bool) {
	s.forget(s)
	if !await {
		s.hangUp()
	}
	recycle := s.mayRecycle()
	if !await && !recycle || !s.settled() || !s.release(recycle) {
		s.cut()
		return
	}
	s.recycle(s.server)
}

// release ends the client's connection, and prepares the server's for the next client. It reports false if it has to
// end.
func (s *session) release(recycle bool) bool {
	s.hangUp()
	s.mu.Lock()
	reset := s.reset()
	if !recycle || s.spoiled || s.broken || len(reset) == 0 {
		s.mu.Unlock()
		return false
	}
	s.releasing = true
	for _, m := range reset {
		s.sent(m)
	}
	s.mu.Unlock()
	for _, m := range reset {
		if _, err := s.server.out.Write(m.raw); err != nil {
			return false
		}
	}
	return s.server.out.Flush() == nil && s.quiet()
}

// settled waits until the server has answered everything. It reports false if that is not known.
func (s *session) settled() bool {
	s.mu.Lock()
	more := s.completion()
	s.mu.Unlock()
	s.mute()
	if s.send(more...) != nil { // also flushes
		return false
	}
	return s.quiet()
}

// quiet waits until the server owes no answer.
func (s *session) quiet() bool {
	late := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken = true
		s.changed.Broadcast()
	})
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.idle() && !s.broken {
		s.changed.Wait()
	}
	return !s.broken
}
