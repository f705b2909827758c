package wireproxy

import "encoding/binary"

const (
	clientDeprecateEOF = 1 << 24
	clientSSL          = 1 << 11
	clientCompress     = 1 << 5
	clientMySQL        = 1 << 0

	clientCacheMetadata = 1 << 4 // of MariaDB's extended flags: answers without their columns

	authMore = 0x01
)

// startup lets the client log in. The server speaks first, so that a recycled session is chosen before it is known who
// comes: when the client has other settings than its last one, a new session takes its place.
func (w *mysqlProtocol) startup(s *session) bool {
	if !s.connecting() {
		return false
	}
	u := s.recycled("")
	fresh := u == nil
	if fresh {
		if u = w.dial(s); u == nil {
			return false
		}
	}
	if !s.attach(u) {
		return false
	}
	if _, err := s.client.Write(u.greeting[0]); err != nil {
		return false
	}
	login, err := readPacket(s.in)
	if err != nil || len(login) < 8 {
		return false
	}
	flags := binary.LittleEndian.Uint32(login[4:])
	w.deprecateEOF = flags&clientDeprecateEOF != 0
	if !fresh && u.key != string(login) {
		u.conn.Close()
		if u = w.dial(s); u == nil || !s.attach(u) {
			return false
		}
		fresh = true
	}
	if fresh {
		u.key = string(login)
		return w.login(s, u, login)
	}
	return s.welcome(u.greeting[1])
}

// dial opens a session and reads the server's first packet. The proxy cannot read all that the server knows, such as
// encryption, and says that the server does not know it.
func (*mysqlProtocol) dial(s *session) *upstream {
	u, err := s.dial()
	if err != nil {
		return nil
	}
	hello, err := readPacket(u.in)
	if err != nil {
		u.conn.Close()
		return nil
	}
	if at := capabilities(hello); at > 0 {
		low := binary.LittleEndian.Uint16(hello[at:])
		binary.LittleEndian.PutUint16(hello[at:], low&^(clientSSL|clientCompress))
		if extended := at + 14; low&clientMySQL == 0 && extended < len(hello) { // MariaDB
			hello[extended] &^= clientCacheMetadata
		}
	}
	u.greeting = [][]byte{hello}
	return u
}

// capabilities returns where the lower half of the server's flags is in its first packet; 0: nowhere.
func capabilities(hello []byte) int {
	const before, after = 5, 4 + 8 + 1 // head and version of the protocol; thread, salt and a zero
	for i := before; i < len(hello); i++ {
		if hello[i] == 0 && i+1+after+2 <= len(hello) {
			return i + 1 + after
		}
	}
	return 0
}

// login passes on what client and server say about the client's password.
func (*mysqlProtocol) login(s *session, u *upstream, login []byte) bool {
	if _, err := u.conn.Write(login); err != nil {
		return false
	}
	for {
		p, err := readPacket(u.in)
		if err != nil || len(p) < 5 {
			return false
		}
		if p[4] == packetOK {
			u.greeting = append(u.greeting, p)
			s.mu.Lock()
			s.spoiled = p[3] != 2 // the next client would not expect this number
			s.mu.Unlock()
			return s.welcome(p)
		}
		if _, err := s.client.Write(p); err != nil || p[4] == packetErr {
			return false
		}
		if p[4] == authMore && len(p) == 6 && p[5] == 3 { // the password was right, and OK follows
			continue
		}
		answer, err := readPacket(s.in)
		if err != nil {
			return false
		}
		if _, err := u.conn.Write(answer); err != nil {
			return false
		}
	}
}

// welcome tells the client that it is logged in.
func (s *session) welcome(ok []byte) bool {
	switch a := s.decide(Frame{Conn: s.number, FromServer: true, Kind: "OK", Statement: Connect}); a.Kind {
	case CutBefore:
		s.cutFor(a)
		return false
	case CutAfter:
		if _, err := s.client.Write(ok); err == nil {
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
	_, err := s.client.Write(ok)
	return err == nil
}
