package wireproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// The messages that the proxy recognizes; see https://www.postgresql.org/docs/current/protocol.html.
const (
	query, parse, bind, execute    = 'Q', 'P', 'B', 'E'
	describe, closing, syncing     = 'D', 'C', 'S'
	flush, terminate               = 'H', 'X'
	commandComplete, readyForQuery = 'C', 'Z'
	errorResponse                  = 'E'

	sslRequest, gssRequest, cancelRequest = 80877103, 80877104, 80877102
)

var syncMessage = message{kind: syncing}

// maxMessage is the longest message that the server accepts.
const maxMessage = 1 << 30

// message is a message in either direction. A client's first message has no kind.
type message struct {
	kind byte
	body []byte
}

func readMessage(in io.Reader) (message, error) {
	var kind [1]byte
	if _, err := io.ReadFull(in, kind[:]); err != nil {
		return message{}, err
	}
	m, err := readUntyped(in)
	m.kind = kind[0]
	return m, err
}

func readUntyped(in io.Reader) (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > maxMessage {
		return message{}, fmt.Errorf("wireproxy: a message of %d bytes", n)
	}
	var body bytes.Buffer // grows with the received bytes, not with the announced length
	if _, err := io.CopyN(&body, in, int64(n)-4); err != nil {
		return message{}, err
	}
	return message{body: body.Bytes()}, nil
}

func (m message) bytes() []byte {
	b := make([]byte, 0, len(m.body)+5)
	if m.kind != 0 {
		b = append(b, m.kind)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.body)+4))
	return append(b, m.body...)
}

// code returns the request code of a client's first message.
func (m message) code() uint32 {
	if len(m.body) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(m.body)
}

// isCommit reports whether a statement makes the server commit.
func isCommit(sql string) bool {
	words := strings.FieldsFunc(strings.ToLower(sql), func(r rune) bool { return strings.ContainsRune(" \t\r\n;", r) })
	return len(words) > 0 && (words[0] == "commit" || words[0] == "end")
}
