package wireproxy

import (
	"bytes"
	"time"
)

// injected is in the text of each error that an Answer makes.
const injected = "injected by wireproxy"

// told returns what to call when the client has got this answer: nothing if it is not the error of an Answer.
func told(failed func(), raw []byte) func() {
	if !bytes.Contains(raw, []byte(injected)) {
		return nil
	}
	return failed
}

// answers forwards the server's messages until the server's connection ends, or is recycled.
func (s *session) answers() {
	for {
		raw, err := s.answer(s.server.in)
		if err != nil {
			s.mu.Lock()
			s.broken = true
			s.changed.Broadcast()
			s.mu.Unlock()
			s.hangUp()
			return
		}
		s.mu.Lock()
		f, hidden := s.received(raw)
		done := s.releasing && s.idle()
		hidden = hidden || s.muted
		s.changed.Broadcast()
		s.mu.Unlock()
		if !hidden {
			f.Conn = s.number
			s.pass(f, raw)
		}
		if done {
			return
		}
	}
}

// pass passes an answer on to the client.
func (s *session) pass(f Frame, raw []byte) {
	switch a := s.decide(f); a.Kind {
	case CutBefore:
		s.cutFor(a)
		return
	case CutAfter:
		if _, err := s.out.Write(raw); err == nil && s.out.Flush() == nil {
			s.cutFor(a)
		}
		s.hangUp()
		return
	case Stall:
		_ = s.out.Flush()
		if s.stall(a.For) {
			a.done()
		}
	default: // Decide returns nothing else for an answer
	}
	_, err := s.out.Write(raw)
	if err == nil && s.server.in.Buffered() == 0 {
		err = s.out.Flush()
	}
	if err != nil {
		s.hangUp()
		return
	}
	if f.failed != nil && s.out.Flush() == nil {
		f.failed()
	}
}

// stall waits for d. It reports false if the client or the proxy has ended before.
func (s *session) stall(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.gone: // a timer of 0 must not win
		return false
	default:
	}
	select {
	case <-timer.C:
		return true
	case <-s.gone:
	case <-s.closed:
	}
	return false
}
