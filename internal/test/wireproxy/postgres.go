package wireproxy

import (
	"bufio"
	"sync/atomic"
)

// postgresWire is PostgreSQL's wire protocol.
type postgresWire struct {
	known     commits
	committed bool // the answer to COMMIT was read
}

// startup forwards the first message. It refuses requests for encryption, which precede it.
func (*postgresWire) startup(s *session, in *bufio.Reader) bool {
	for {
		m, err := readUntyped(in)
		if err != nil {
			return false
		}
		switch m.code() {
		case sslRequest, gssRequest:
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		}
		_, err = s.server.Write(m.bytes())
		return err == nil && m.code() != cancelRequest
	}
}

func (w *postgresWire) request(in *bufio.Reader) ([]byte, bool, error) {
	m, err := readMessage(in)
	return m.bytes(), err == nil && w.known.isCommit(m), err
}

func (*postgresWire) late(commit []byte) []byte {
	if commit[0] == execute {
		commit = append(commit, syncMessage.bytes()...)
	}
	return commit
}

func (w *postgresWire) answer(in *bufio.Reader, muted *atomic.Bool) ([]byte, bool, error) {
	m, err := readMessage(in)
	if err != nil {
		return nil, false, err
	}
	w.committed = muted.Load() && (w.committed || m.endsCommit())
	return m.bytes(), w.committed && m.kind == readyForQuery, nil
}
