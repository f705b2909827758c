package wireproxy

import (
	"encoding/binary"
	"io"
)

// startup refuses encryption, carries out a CancelRequest, or begins a session.
func (*postgresProtocol) startup(s *session) bool {
	for {
		m, err := readUntyped(s.in)
		if err != nil {
			return false
		}
		switch m.code() {
		case sslRequest, gssRequest:
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return false
			}
		case cancelRequest:
			s.cancel(m)
			return false
		default:
			return s.begin(m)
		}
	}
}

// begin gives the client a session with the settings of its first message.
func (s *session) begin(m message) bool {
	f := Frame{Conn: s.number, Kind: "StartupMessage", Statement: Connect}
	switch a := s.decide(f); a.Kind {
	case CutBefore:
		s.cutFor(a)
		return false
	case CutAfter:
		if u, err := s.dial(); err == nil {
			if _, err := u.conn.Write(m.bytes()); err == nil {
				s.cutFor(a)
			}
			u.conn.Close()
		}
		return false
	case Stall:
		if !s.wait(a.For) {
			return false
		}
		a.done()
	default: // the others are not possible
	}
	settings := string(m.body)
	if u := s.recycled(settings); u != nil {
		return s.attach(u) && s.greet()
	}
	u, err := s.dial()
	if err != nil {
		return false
	}
	u.settings = settings
	if !s.attach(u) {
		return false
	}
	if _, err := u.conn.Write(m.bytes()); err != nil {
		return false
	}
	return s.authenticate(u) && s.greet()
}

// authenticate passes on what client and server say before the server's greeting, which it keeps.
func (s *session) authenticate(u *upstream) bool {
	for {
		m, err := readMessage(u.in)
		if err != nil {
			return false
		}
		switch {
		case m.kind == 'R' && m.code() != 0:
			if !s.prove(u, m) {
				return false
			}
			continue
		case m.kind == errorResponse:
			_, _ = s.client.Write(m.bytes())
			return false
		case m.kind == 'K':
			u.key = string(m.body)
		}
		u.greeting = append(u.greeting, m.bytes())
		if m.kind == readyForQuery {
			return true
		}
	}
}

// prove passes on a question about the client's password, and the answer.
func (s *session) prove(u *upstream, m message) bool {
	const saslFinal = 12
	if _, err := s.client.Write(m.bytes()); err != nil {
		return false
	}
	if m.code() == saslFinal {
		return true
	}
	answer, err := readMessage(s.in)
	if err != nil {
		return false
	}
	_, err = u.conn.Write(answer.bytes())
	return err == nil
}

// greet sends the client the greeting of its session, with a key of its own: one that cancels for this client only.
func (s *session) greet() bool {
	for _, raw := range s.server.greeting {
		if raw[0] == 'K' {
			raw = message{'K', []byte(s.newKey(s.server.key))}.bytes()
		}
		if raw[0] == readyForQuery {
			f := Frame{Conn: s.number, FromServer: true, Kind: "ReadyForQuery", Statement: Connect}
			switch a := s.decide(f); a.Kind {
			case CutBefore:
				s.cutFor(a)
				return false
			case CutAfter:
				if _, err := s.out.Write(raw); err == nil && s.out.Flush() == nil {
					s.cutFor(a)
				}
				return false
			case Stall:
				_ = s.out.Flush()
				if !s.wait(a.For) {
					return false
				}
				a.done()
			default: // the others are not possible
			}
		}
		if _, err := s.out.Write(raw); err != nil {
			return false
		}
	}
	return s.out.Flush() == nil
}

// newKey returns the key of a client's CancelRequests: the server's process, so that the client does not take the proxy
// for a pooler, and a secret in place of the server's.
func (s *session) newKey(of string) string {
	const process = 4
	key := append([]byte(of), make([]byte, process)...)[:max(len(of), 2*process)]
	binary.BigEndian.PutUint32(key[process:], uint32(s.number))
	s.Proxy.mu.Lock()
	defer s.Proxy.mu.Unlock()
	s.keys[string(key)] = s
	return string(key)
}

// cancel carries out a CancelRequest. Its session is not used again, because the server may act on it later.
func (s *session) cancel(m message) {
	f := Frame{Conn: s.number, Kind: "CancelRequest", Statement: Cancel}
	switch a := s.decide(f); a.Kind {
	case CutBefore:
		return
	case CutLate:
		s.hangUp()
		if !s.wait(a.For) {
			return
		}
	case Stall:
		if !s.wait(a.For) {
			return
		}
	default: // it has no answer
	}
	s.Proxy.mu.Lock()
	of := s.keys[string(m.body[4:])]
	s.Proxy.mu.Unlock()
	if of == nil {
		return
	}
	of.mu.Lock()
	of.spoiled = true
	released, key := of.releasing, of.server.key
	of.mu.Unlock()
	if released {
		return
	}
	u, err := s.dial()
	if err != nil || !s.attach(u) {
		return
	}
	request := binary.BigEndian.AppendUint32(nil, cancelRequest)
	if _, err := u.conn.Write(message{body: append(request, key...)}.bytes()); err == nil {
		_, _ = io.Copy(io.Discard, u.conn) // the server closes when it has acted
	}
}
