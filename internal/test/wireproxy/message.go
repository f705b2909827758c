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
	commandComplete, readyForQuery = 'C', 'Z'
	errorResponse                  = 'E'

	sslRequest, gssRequest, cancelRequest = 80877103, 80877104, 80877102
)

var syncMessage = message{kind: 'S'}

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

// endsCommit reports whether a server's message answers COMMIT.
func (m message) endsCommit() bool {
	if m.kind == errorResponse {
		return true
	}
	tag, _, _ := strings.Cut(string(m.body), "\x00")
	return m.kind == commandComplete && (tag == "COMMIT" || tag == "ROLLBACK")
}

// commits holds the names of a session's prepared statements and portals that are a COMMIT.
type commits struct{ statements, portals map[string]bool }

// isCommit reports whether a client's message makes the server commit.
func (c *commits) isCommit(m message) bool {
	name, rest, _ := strings.Cut(string(m.body), "\x00")
	second, _, _ := strings.Cut(rest, "\x00")
	switch m.kind {
	case query:
		return isCommit(name)
	case parse: // name, statement
		note(&c.statements, name, isCommit(second))
	case bind: // portal, name
		note(&c.portals, name, c.statements[second])
	case execute: // portal
		return c.portals[name]
	}
	return false
}

func note(names *map[string]bool, name string, is bool) {
	if *names == nil {
		*names = map[string]bool{}
	}
	(*names)[name] = is
}

func isCommit(sql string) bool {
	words := strings.FieldsFunc(strings.ToLower(sql), func(r rune) bool { return strings.ContainsRune(" \t\r\n;", r) })
	return len(words) > 0 && (words[0] == "commit" || words[0] == "end")
}
