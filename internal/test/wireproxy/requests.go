package wireproxy

import "sync"

// connecting decides about a new connection, before the client has sent anything. It reports false if that ends.
func (s *session) connecting() bool {
	switch a := s.decide(Frame{Conn: s.number, Kind: "connection", Statement: Connect}); a.Kind {
	case CutBefore:
		s.cutFor(a)
		return false
	case CutAfter:
		if u, err := s.dial(); err == nil {
			u.conn.Close()
			s.cutFor(a)
		}
		return false
	case Stall:
		if !s.wait(a.For) {
			return false
		}
		a.done()
	default: // the others are not possible
	}
	return true
}

// requests forwards the client's messages until the client's connection ends, or is to end. await means that the server
// must finish before the client notices.
func (s *session) requests() (await bool) {
	for {
		m, last, err := s.request(s.in)
		if err != nil {
			return false
		}
		m.Conn = s.number
		if last {
			if s.cfg.Recycle == 0 {
				_ = s.send(m)
			}
			return false
		}
		switch a := s.decide(m.Frame); a.Kind {
		case Forward:
			err = s.send(m)
		case Stall:
			if !s.wait(a.For) {
				return false
			}
			if err = s.send(m); err == nil {
				a.done()
			}
		case CutBefore:
			s.cutFor(a)
			return false
		case CutAfter:
			s.mute()
			if s.send(m) == nil && s.settled() {
				s.cutFor(a)
			}
			return true
		case CutLate:
			if s.hangUp() && s.wait(a.For) && s.sendLate(m, a.Late) == nil {
				a.done()
			}
			return true
		case Answer:
			m.failed = a.Done
			err = s.send(s.failure(m, a.Code)...)
		}
		if err != nil {
			return false
		}
	}
}

// send sends messages to the server. It flushes unless the client has sent more.
func (s *session) send(ms ...packet) error {
	s.mu.Lock()
	for _, m := range ms {
		s.sent(m)
	}
	flush := s.in.Buffered() == 0 || s.muted
	s.mu.Unlock()
	for _, m := range ms { // not under the lock, which answers needs: the server may want to be read first
		if _, err := s.server.out.Write(m.raw); err != nil {
			return err
		}
	}
	if !flush {
		return nil
	}
	return s.server.out.Flush()
}

// sendLate is send while late is held.
func (s *session) sendLate(m packet, late sync.Locker) error {
	if late != nil {
		late.Lock()
		defer late.Unlock()
	}
	return s.send(m)
}
